package e2etest

import (
	"errors"
	"os"
	"path/filepath"
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

// Result reads the result of the attempt in a folder.
func Result(t *testing.T, attempt string) *record.Result {
	t.Helper()
	r, err := store.ReadResult(attempt)
	Must(t, err)
	return r
}
