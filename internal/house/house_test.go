package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

const (
	module = "github.com/berth-eval/berth"
	tags   = "grpcnotrace" // as in the Makefile
	root   = "../.."
)

// pkg is the information of `go list` about one of our packages.
type pkg struct {
	ImportPath, Name, Dir              string
	Imports, TestImports, XTestImports []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// rel returns the import path below the module: "core/plan".
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// goList runs `go list` in the root of the tree.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-tags", tags}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is built
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

var listed = struct {
	sync.Mutex
	pkgs []pkg
}{}

// packages lists all packages of the module, once per process.
func packages(t *testing.T) []pkg {
	t.Helper()
	listed.Lock()
	defer listed.Unlock()
	if listed.pkgs != nil {
		return listed.pkgs
	}
	dec := json.NewDecoder(bytes.NewReader(goList(t, "-find=false", "-json", "./...")))
	for {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list -json: %v", err)
		}
		listed.pkgs = append(listed.pkgs, p)
	}
	if len(listed.pkgs) < 5 {
		t.Fatalf("go list found %d packages: is the test run in the tree?", len(listed.pkgs))
	}
	return listed.pkgs
}

// file is one file of the tree, its path relative to the root.
type file struct {
	path string
	text string
}

func (f file) generated() bool {
	head, _, _ := strings.Cut(f.text, "\npackage ")
	return strings.Contains(head, "// Code generated ") && strings.Contains(head, " DO NOT EDIT.")
}

// files reads every text file below dir that git does not ignore by the rules
// of this tree, except testdata, which holds input from outside.
func files(t *testing.T, dir string) []file {
	t.Helper()
	var found []file
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == filepath.Join(root, dir) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin", "runs", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			return err
		}
		rel, err := filepath.Rel(root, path)
		found = append(found, file{rel, string(data)})
		return err
	})
	testlevel.Must(t, err)
	return found
}
