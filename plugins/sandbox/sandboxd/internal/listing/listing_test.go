package listing_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/listing"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func write(name, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o750), os.WriteFile(name, []byte(text), 0o600))
}

// grown is a folder with a few files.
func grown(t *testing.T) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, name := range []string{"bin/cat", "bin/awk", "lib/deep/er/libc.so", "lib/deep/readme", "etc/cache", "work/file"} {
		must(t, write(filepath.Join(root, name), "image"))
	}
	must(t, os.Symlink("awk", root+"/bin/nawk"))
	return root
}

// Whatever is done to a file between two lists shows.
func TestWhatHappenedBetweenTwoLists(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(r string) error
		want   []string
	}{
		{"nothing", func(string) error { return nil }, nil},
		{"work", func(r string) error { return write(r+"/work/new", "x") }, nil},
		{"written, and its times set back", func(r string) error {
			info, err := os.Stat(r + "/bin/cat")
			return errors.Join(err, os.WriteFile(r+"/bin/cat", []byte("eviL!"), 0o600), os.Chtimes(r+"/bin/cat", info.ModTime(), info.ModTime()))
		}, []string{"bin/cat"}},
		{"changed and changed back", func(r string) error {
			return errors.Join(os.WriteFile(r+"/bin/cat", []byte("eviL!"), 0o600), os.WriteFile(r+"/bin/cat", []byte("image"), 0o600))
		}, []string{"bin/cat"}},
		{"chmod", func(r string) error { return os.Chmod(r+"/bin/cat", 0o700) }, []string{"bin/cat"}},
		{"chmod of a folder", func(r string) error { return os.Chmod(r+"/lib/deep", 0o700) }, []string{"lib/deep"}},
		{"added deep", func(r string) error { return write(r+"/lib/deep/er/x86_64/libc.so", "x") }, []string{"lib/deep/er/x86_64"}},
		{"removed", func(r string) error { return os.Remove(r + "/etc/cache") }, []string{"etc/cache"}},
		{"a folder is removed", func(r string) error { return os.RemoveAll(r + "/bin") }, []string{"bin"}},
		{"a folder is renamed", func(r string) error { return os.Rename(r+"/lib/deep", r+"/lib/other") }, []string{"lib/deep", "lib/other"}},
		{"moved over", func(r string) error { return os.Rename(r+"/work/file", r+"/bin/cat") }, []string{"bin/cat"}},
		{"linked to", func(r string) error { return os.Link(r+"/bin/cat", r+"/work/cat") }, []string{"bin/cat"}},
		{"linked in", func(r string) error { return os.Symlink("../work/file", r+"/bin/new") }, []string{"bin/new"}},
		{"a link is turned", func(r string) error {
			return errors.Join(os.Remove(r+"/bin/nawk"), os.Symlink("cat", r+"/bin/nawk"))
		}, []string{"bin/nawk"}},
		{"a place that did not exist", func(r string) error { return write(r+"/home/.curlrc", "x") }, []string{"home/.curlrc"}},
		{"a place is a link now", func(r string) error {
			return errors.Join(os.Rename(r+"/bin", r+"/work/bin"), os.Symlink("work/bin", r+"/bin"))
		}, []string{"bin", "bin/awk", "bin/cat", "bin/nawk"}},
		{"a name that is not UTF-8", func(r string) error { return write(r+"/lib/\xff.pth", "x") }, []string{"lib/\xff.pth"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := grown(t)
			before, err := listing.Make(system.Places{Roots: []string{r + "/bin", r + "/etc", r + "/home/.curlrc", r + "/lib"}}, 0)
			must(t, err)
			changes.Moment()
			must(t, tt.change(r))
			now, err := before.Again()
			must(t, err)
			var got []string
			for _, name := range before.Compare(now) {
				got = append(got, strings.TrimPrefix(name, r+"/"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// No number of names hides one.
func TestThereMayBeManyNames(t *testing.T) {
	t.Parallel()
	r := t.TempDir()
	for i := range 50_001 {
		f, err := os.Create(fmt.Sprintf("%s/n%05d", r, i))
		must(t, err, f.Close())
	}
	before, err := listing.Make(system.Places{Roots: []string{r}}, 0)
	must(t, err)
	must(t, os.Remove(r+"/n50000"), write(r+"/zzz", ""))
	now, err := before.Again()
	must(t, err)
	if got := before.Compare(now); !slices.Equal(got, []string{r + "/n50000", r + "/zzz"}) {
		t.Errorf("found %q", got)
	}
}

// A list that would be too long is refused.
func TestAListHasABound(t *testing.T) {
	t.Parallel()
	deep := t.TempDir()
	must(t, os.MkdirAll(deep+strings.Repeat("/d", 250), 0o750))
	if _, err := listing.Make(system.Places{Roots: []string{deep}}, 0); !errors.Is(err, fault.ErrTooLarge) {
		t.Errorf("folders in one another: %v", err)
	}
}

func TestWhichFilesAreTheSystems(t *testing.T) {
	t.Parallel()
	r := grown(t)
	must(t, os.Symlink(r+"/lib", r+"/work/libs"))
	places := system.Find(system.Commands{
		Dir: r + "/work", Programs: []string{r + "/work/judge"},
		Env: []string{"PATH=" + r + "/bin:" + r + "/work:" + r + "/work/venv/bin:/usr/bin", "PYTHONPATH=" + r + "/work/src:" + r + "/lib", "HOME=" + r + "/home", "BASH_ENV=rc"},
	})
	for name, want := range map[string]bool{
		"/usr/bin/new": true, "/etc/pam.d/su": true, "/etc/hosts": true, "/opt/x": true, "/var/lib/dpkg/info/x.postinst": true, "/root/.wgetrc": true,
		r + "/bin/cat": true, r + "/lib/x": true, r + "/work/file": false, r + "/work/src/mine.py": false, r + "/work/venv/bin/python": true,
		r + "/work/venv/lib/x": true, r + "/work/judge": true, r + "/work/rc": true, r + "/home/.bashrc": true, r + "/home/.config/pip/pip.conf": true,
		r + "/home/file": false, r + "/home/.cargo/registry": false, "/tmp/x": false, "/var/log/x": false,
	} {
		if places.Has(name) != want {
			t.Errorf("%s is a file of the system: %v", name, !want)
		}
	}
}
