package usage_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/usage"
)

// A result that is written in the place of a device or a pipe destroys it.
func TestOnlyFilesAreReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, file, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{
		"-": true, "/dev/null": true, "/dev/stdout": true, dir: true, pipe: true, link: true, file: false, filepath.Join(dir, "new"): false, "": false,
	} {
		if err := usage.File(name); (err != nil) != refused {
			t.Errorf("%q: %v", name, err)
		}
	}
}
