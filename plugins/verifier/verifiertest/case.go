package verifiertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Names in the folder of a case.
const (
	caseFile    = "case.json"
	caseView    = "view"
	caseSandbox = "sandbox"
	// CaseReplies is a script of replies, which the models of the case answer with.
	CaseReplies = "replies.yaml"
)

// maxCaseFile is how large a file of a case's view may be.
const maxCaseFile = 16 << 20

// LoadCases reads cases from a folder: one, if it has a case.json, else one from
// each folder in it that has one. The folder of a case holds
//
//	case.json     {"want": "pass", "scores": {…}, "settings": {…}, "config": {…}, "env": {…}}; want is required. A case of
//	              rounds has "round", "rounds_left" and "earlier" (verdicts) as verifier.Request has them. With
//	              "verifier": "name" it is for that verifier of a plugin that serves several.
//	view/…        files of the view: tests/…, attempt/artifacts/…
//	sandbox/…     what stands in the sandbox that is graded, from its root
//	replies.yaml  what the models of the verifier answer; without it the kit's own
func LoadCases(dir string) ([]Case, error) {
	if _, err := os.Stat(filepath.Join(dir, caseFile)); err == nil {
		c, err := loadCase(dir)
		return []Case{c}, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", caseFile))
	if err == nil && len(files) == 0 {
		_, err = os.ReadDir(dir)
		err = errors.Join(fmt.Errorf("case %s: neither it nor a folder in it has a %s", dir, caseFile), err)
	}
	if err != nil {
		return nil, err
	}
	var out []Case
	for _, f := range files {
		c, err := loadCase(filepath.Dir(f))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func loadCase(dir string) (Case, error) {
	c := Case{Name: filepath.Base(dir), Dir: dir, Files: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(dir, caseFile))
	if err != nil {
		return c, fmt.Errorf("case %s: %w", dir, err)
	}
	said := struct { // both in one object
		*Case
		*verifier.Request
	}{&c, &c.Request}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err = d.Decode(&said); err == nil && d.More() {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return c, fmt.Errorf("case %s: %s: %w", dir, caseFile, err)
	}
	known := c.Want == verifier.Pass || c.Want == verifier.Fail || c.Want == verifier.Scored
	if !known && (c.Want != verifier.Continue || c.Request.Round == 0) {
		return c, fmt.Errorf(`case %s: %s: want is %q: write the decision that the work deserves: "pass", "fail" or "scored", or in a round "continue"`, dir, caseFile, c.Want)
	}
	if info, err := os.Stat(filepath.Join(dir, caseSandbox)); err == nil && info.IsDir() {
		c.Sandbox = filepath.Join(dir, caseSandbox)
	}
	return c, c.readView(filepath.Join(dir, caseView))
}

// readView takes the files below dir, which need not exist, over plain ones for
// what every view has.
func (c *Case) readView(dir string) error {
	for _, name := range []string{"task.json", "instruction.md", "attempt/turns.jsonl", "attempt/steps.jsonl", "attempt/verdicts.jsonl"} {
		c.Files[name] = plain[name]
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > maxCaseFile {
			return fmt.Errorf("case: %s: not a regular file of at most %d MiB", path, maxCaseFile>>20)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		c.Files[filepath.ToSlash(name)] = string(text)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// furnish puts what the case has for the sandbox into it.
func (c *Case) furnish(t *conformance.T, address string) {
	if c.Sandbox == "" {
		return
	}
	what := "put the files of case " + c.Name + " into the sandbox"
	shell, err := sandbox.Dial(address)
	t.Must(what, err)
	defer func() { _ = shell.Close() }()
	entries, err := os.ReadDir(c.Sandbox)
	t.Must(what, err)
	for _, e := range entries { // each by itself: the sandbox's root keeps its mode
		if !e.IsDir() {
			t.Fatalf("case %s: %s: put files of the sandbox into folders, as they stand from its root", c.Name, filepath.Join(c.Sandbox, e.Name()))
		}
		t.Must(what, shell.UploadFolder(t.Context(), filepath.Join(c.Sandbox, e.Name()), "/"+e.Name(), sandbox.UploadOptions{}))
	}
}
