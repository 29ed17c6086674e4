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

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe, huge := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"), filepath.Join(dir, "huge")
	for _, err := range []error{os.WriteFile(file, []byte("x"), 0o600), os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 2<<30), syscall.Mkfifo(pipe, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := usage.Read(file); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"/dev/zero", pipe, dir, huge} {
		if _, err := usage.Read(name); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
