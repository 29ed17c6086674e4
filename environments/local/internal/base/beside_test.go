package base

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A copy of root's su works like the original, and that of a program of another user
// does not become one of the user who made the copy.
func TestACopyKeepsTheSetIDBitsOfItsOwner(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]fs.FileMode{
		"su": fs.ModeSetuid | 0o755, "both": fs.ModeSetuid | fs.ModeSetgid | 0o711, "plain": 0o755, "theirs": fs.ModeSetuid | fs.ModeSetgid | 0o755,
	} {
		write(t, filepath.Join(root, name), name, mode)
	}
	want := map[string]fs.FileMode{"su": fs.ModeSetuid | 0o755, "both": fs.ModeSetuid | fs.ModeSetgid | 0o711, "plain": 0o755}
	if theirs := filepath.Join(root, "theirs"); os.Chown(theirs, 12345, -1) == nil { // by root only
		if err := os.Chmod(theirs, fs.ModeSetuid|fs.ModeSetgid|0o755); err != nil { // chown cleared the bits
			t.Fatal(err)
		}
		want["theirs"] = fs.ModeSetgid | 0o755
	}
	c, err := state(t).Beside(root, []string{"."}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, mode := range want {
		if info, err := os.Lstat(filepath.Join(c.Path, name)); err != nil || info.Mode()&^0o600 != mode&^0o600 {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
}
