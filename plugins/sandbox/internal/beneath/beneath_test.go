package beneath

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/fault"
)

// tree is a folder with traps in it, open.
func tree(t *testing.T) (string, int) {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(dir+"/in/real", 0o755), os.WriteFile(dir+"/in/real/f", []byte("x"), 0o600), os.WriteFile(dir+"/out", []byte("y"), 0o600),
		os.Symlink("real", dir+"/in/link"), os.Symlink("../out", dir+"/in/up"), os.Symlink("/proc/self", dir+"/in/proc"), unix.Mkfifo(dir+"/in/pipe", 0o600),
	); err != nil {
		t.Fatal(err)
	}
	fd, err := Dir(dir + "/in")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return dir + "/in", fd
}

func TestOnlyPlainFilesBelow(t *testing.T) {
	t.Parallel()
	_, fd := tree(t)
	for name, want := range map[string]error{
		"real/f": nil, "link/f": fault.ErrUnsafe, "up": fault.ErrUnsafe, "../out": fault.ErrUnsafe, "proc/mem": fault.ErrUnsafe,
		"pipe": fault.ErrUnsafe, "real": fault.ErrUnsafe, "none": fault.ErrNotFound, "/etc/passwd": fault.ErrUnsafe,
	} {
		got, _, err := File(fd, name)
		if err == nil {
			_ = unix.Close(got)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

func TestFoldersMayBeLinkedButNotIntoTheKernel(t *testing.T) {
	t.Parallel()
	dir, _ := tree(t)
	for name, want := range map[string]error{
		"/link": nil, "/real": nil, "/proc": fault.ErrUnsafe, "/proc/fd": fault.ErrUnsafe, "/real/f": fault.ErrNotFound, "/none": fault.ErrNotFound,
	} {
		got, err := Dir(dir + name)
		if err == nil {
			_ = unix.Close(got)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, name := range []string{"/proc", "/sys", "/proc/self/fd"} {
		if got, err := Dir(name); err == nil {
			_ = unix.Close(got)
			t.Errorf("%s was opened", name)
		}
	}
	if fd, _, err := Regular("/proc/version"); err == nil {
		_ = unix.Close(fd)
		t.Error("a file of procfs was opened")
	}
}

func TestMkdirAllGoesNoOtherWay(t *testing.T) {
	t.Parallel()
	dir, fd := tree(t)
	nobody := Owner{UID: -1, GID: -1}
	made, err := MkdirAll(fd, "a/b/c", nobody)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(made)
	if info, err := os.Stat(dir + "/a/b/c"); err != nil || !info.IsDir() {
		t.Errorf("got %v, %v", info, err)
	}
	for _, name := range []string{"link/x", "up", "proc/x", "real/f/x", "../x"} {
		if made, err := MkdirAll(fd, name, nobody); err == nil {
			_ = unix.Close(made)
			t.Errorf("%s was made", name)
		}
	}
}
