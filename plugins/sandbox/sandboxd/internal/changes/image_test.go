package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
)

// overlay mounts an overlay over a folder and returns where.
func overlay(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o750))
	}
	root := dir + "/root"
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, dir, dir)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		testlevel.Root(t, "mount an overlay")
		testlevel.Cannot(t, testlevel.NoMounts, err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(root, 0)) })
	return root
}

// Sandboxes of one image share the links of folders that nothing was written to.
func TestLinksOfTheImageAreReadOnce(t *testing.T) {
	t.Parallel()
	lower := t.TempDir()
	for _, name := range []string{"usr/bin/mawk", "usr/bin/gawk", "opt/tool/tool"} {
		write(t, filepath.Join(lower, name), "#!/bin/sh\n")
	}
	must(t, os.Mkdir(lower+"/alternatives", 0o750),
		os.Symlink("../../alternatives/awk", lower+"/usr/bin/awk"), os.Symlink("../usr/bin/mawk", lower+"/alternatives/awk"),
		os.Symlink("../../opt/tool/tool", lower+"/usr/bin/tool"), os.Symlink("tool", lower+"/usr/bin/same"))
	born := changes.Moment()

	var known []changes.Folder
	for _, tt := range []struct {
		name   string
		change func(root string) error
		want   []string
		read   int // folders whose links were not known
	}{
		{"nothing", func(string) error { return nil }, nil, 3},
		{"nothing, in another sandbox", func(string) error { return nil }, nil, 0},
		{"what a link leads to", func(r string) error { return os.WriteFile(r+"/opt/tool/tool", nil, 0o600) }, []string{"opt/tool/tool"}, 0},
		{"a link between", func(r string) error {
			return os.Rename(r+"/usr/bin/awk", r+"/alternatives/awk")
		}, []string{"usr/bin"}, 0},
		{"a link of the alternatives", func(r string) error {
			if err := os.Remove(r + "/alternatives/awk"); err != nil {
				return err
			}
			return os.Symlink("../usr/bin/gawk", r+"/alternatives/awk")
		}, []string{"alternatives/awk"}, 0},
		{"a program", func(r string) error { return os.WriteFile(r+"/usr/bin/mawk", nil, 0o600) }, []string{"usr/bin/mawk"}, 0},
	} {
		root := overlay(t, lower)
		s := &changes.Search{After: changes.Moment(), Born: born, Known: relocated(known, root)}
		must(t, tt.change(root))
		s.Resolve(changes.Command{Home: root + "/home", Dir: root, Env: func(name string) string {
			return map[string]string{"PATH": root + "/usr/bin"}[name]
		}})
		if got := found(s, root); !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
		read := below(s.Read, root)
		if len(read) != tt.read {
			t.Errorf("%s: read %v, want %d folders", tt.name, read, tt.read)
		}
		if known == nil {
			known = read
		}
	}

	// A folder with another time is another image's.
	for i := range known {
		known[i].Ctime--
		known[i].Links = nil
	}
	root := overlay(t, lower)
	s := &changes.Search{After: changes.Moment(), Born: born, Known: relocated(known, root)}
	must(t, os.WriteFile(root+"/opt/tool/tool", nil, 0o600))
	s.Resolve(changes.Command{Home: root + "/home", Dir: root, Env: func(name string) string {
		return map[string]string{"PATH": root + "/usr/bin"}[name]
	}})
	if got := found(s, root); !slices.Equal(got, []string{"opt/tool/tool"}) {
		t.Errorf("with the links of another image: found %q, want what a link leads to", got)
	}
}

// below are the folders below root, with paths from there.
func below(folders []changes.Folder, root string) (out []changes.Folder) {
	for _, f := range folders {
		if rest, err := filepath.Rel(root, f.Path); err == nil && filepath.IsLocal(rest) {
			f.Path = rest
			out = append(out, f)
		}
	}
	return out
}

// relocated are folders below another root.
func relocated(folders []changes.Folder, root string) (out []changes.Folder) {
	for _, f := range folders {
		f.Path = filepath.Join(root, f.Path)
		out = append(out, f)
	}
	return out
}
