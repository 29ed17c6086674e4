// Package newplugin writes a plugin to start from: a program in Go or Python
// that passes its conformance kit as it is.
//
// The templates are the plugins of examples/, under another name; a test holds
// the two together. It must not build or start anything.
package newplugin

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/python"
)

// Languages and Kinds are what Write knows.
var (
	Languages = []string{"go", "python"}
	Kinds     = []string{"agent", "environment", "verifier"}
)

// Options say what to write.
type Options struct {
	Language string // one of Languages
	Kind     string // one of Kinds
	// Dir is the folder to write to. It is made; if it exists it must be empty.
	// Its last part, without plugins.ProgramPrefix, is the name of the plugin. It
	// is a folder of plugins: a plugin in Go is built into it, and one in Python,
	// which has several files, is a folder in it.
	Dir string
	// Checkout is a source tree of Berth for the go.mod of a plugin in Go; empty:
	// go.mod names the published module.
	Checkout string
}

//go:embed templates
var templates embed.FS

// Module is the path of Berth's Go module.
const Module = "github.com/berth-eval/berth"

// pluginName is what the contract allows as the name of a plugin.
var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// Write writes the files of a plugin and returns their paths, and the path of
// the program that `berth plugin test` takes. Fails without writing anything if
// an option is wrong or the folder is not empty.
func Write(o Options) (files []string, program string, err error) {
	name := strings.TrimPrefix(filepath.Base(o.Dir), plugins.ProgramPrefix)
	switch {
	case !slices.Contains(Languages, o.Language):
		return nil, "", fmt.Errorf("language %q: choose one of %s", o.Language, strings.Join(Languages, ", "))
	case !slices.Contains(Kinds, o.Kind):
		return nil, "", fmt.Errorf("kind %q: choose one of %s", o.Kind, strings.Join(Kinds, ", "))
	case !pluginName.MatchString(name):
		return nil, "", fmt.Errorf("the folder %q names the plugin: use lower case letters, digits, - and _, and begin with a letter", name)
	}
	there, err := os.ReadDir(o.Dir)
	switch {
	case err == nil && len(there) > 0:
		return nil, "", fmt.Errorf("%s is not empty: name a new folder", o.Dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	}
	contents, err := goFiles(o, name)
	program = plugins.ProgramPrefix + name
	if o.Language == "python" {
		contents, err = pythonFiles(o, name)
		program = filepath.Join(program, program)
	}
	if err != nil {
		return nil, "", err
	}
	for _, f := range contents {
		path := filepath.Join(o.Dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return files, "", err
		}
		if err := os.WriteFile(path, f.text, f.mode); err != nil {
			return files, "", err
		}
		files = append(files, path)
	}
	return files, filepath.Join(o.Dir, program), nil
}

// file is one file to write.
type file struct {
	path string // relative, with slashes
	text []byte
	mode fs.FileMode
}

// identifier is what the type of a plugin is called: myOwnVerifier for the
// verifier my-own. The kind keeps it from being a word of the language.
func identifier(name, kind string) string {
	var b strings.Builder
	for i, part := range append(strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '_' }), kind) {
		if i > 0 {
			part = capital(part)
		}
		b.WriteString(part)
	}
	return b.String()
}

func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// fill is a template with the name of a plugin and of its type.
func fill(template, name, identifier string) ([]byte, error) {
	text, err := templates.ReadFile("templates/" + template)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer("NAME", name, "IDENT", identifier).Replace(string(text))), nil
}

func goFiles(o Options, name string) ([]file, error) {
	main, err := fill(o.Kind+".go.tmpl", name, identifier(name, o.Kind))
	if err != nil {
		return nil, err
	}
	mod := fmt.Sprintf("module example.org/%s\n\ngo 1.26\n\nrequire %s v0.0.0\n", name, Module)
	if o.Checkout != "" {
		mod += fmt.Sprintf("\nreplace %s => %s\n", Module, o.Checkout)
	}
	files := []file{{"main.go", main, 0o644}, {"go.mod", []byte(mod), 0o644}}
	if o.Kind == "verifier" { // a verifier's own cases; the other kits need a sandbox
		test, err := fill("verifier_test.go.tmpl", name, identifier(name, o.Kind))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"main_test.go", test, 0o644})
	}
	return files, nil
}

func pythonFiles(o Options, name string) ([]file, error) {
	main, err := fill(o.Kind+".py.tmpl", name, capital(identifier(name, o.Kind)))
	if err != nil {
		return nil, err
	}
	folder := plugins.ProgramPrefix + name // its digest covers all of its files
	files := []file{{folder + "/" + folder, main, 0o755}}
	err = fs.WalkDir(python.Module, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := python.Module.ReadFile(path)
		files = append(files, file{folder + "/" + path, text, 0o644})
		return err
	})
	return files, err
}
