package e2etest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Must fails the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Write writes files, by name relative to dir. All of them are executable.
func Write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		Must(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755))) //nolint:gosec // scripts
	}
}

// Read returns the text of the file with these path elements. If it cannot be
// read, the test is marked as failed and continues.
func Read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// Found returns the n paths that a pattern of these elements matches.
func Found(t *testing.T, n int, pattern ...string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(found) != n {
		t.Fatalf("%s matches %q, %v; want %d", filepath.Join(pattern...), found, err, n)
	}
	return found
}

// Lines returns the values of a file of JSON lines with these path elements.
func Lines[T any](t *testing.T, path ...string) (all []T) {
	t.Helper()
	for line := range strings.Lines(Read(t, path...)) {
		var v T
		Must(t, json.Unmarshal([]byte(line), &v))
		all = append(all, v)
	}
	return all
}

// Result reads the result of the attempt in a folder.
func Result(t *testing.T, attempt string) *record.Result {
	t.Helper()
	r, err := store.ReadResult(attempt)
	Must(t, err)
	return r
}
