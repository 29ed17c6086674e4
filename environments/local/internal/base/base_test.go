package base

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

func always(string) error { return nil }

// in is a folder as a place.
func in(dir string) func() (string, error) { return func() (string, error) { return dir, nil } }

// state is a State in a folder of its own.
func state(t *testing.T) *State {
	t.Helper()
	s, err := Open(Places{Top: in(t.TempDir()), Cache: []func() (string, error){in(t.TempDir())}})
	if err == nil {
		err = s.UseBase(always)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestStateFolderIsOursAlone(t *testing.T) {
	top := t.TempDir()
	if _, err := Open(Places{Top: in(top)}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"local-1", "local-1/sandboxes", "local-1/work"} {
		if info, err := os.Lstat(filepath.Join(top, dir)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", dir, info, err)
		}
	}
}

func TestBaseIsTheFirstUsable(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	s, err := Open(Places{Top: in(t.TempDir()), Cache: []func() (string, error){in(first), in(second)}})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space")
	err = s.UseBase(func(dir string) error {
		if strings.HasPrefix(dir, first) {
			return full
		}
		return nil
	})
	if err != nil || !strings.HasPrefix(s.base, second) {
		t.Errorf("got %q, %v; want it below %s", s.base, err, second)
	}
	if err := s.UseBase(func(string) error { return full }); !errors.Is(err, full) {
		t.Errorf("with none usable: %v", err)
	}
}

// After su, or where somebody was there first: what others own or can write to
// is not a place for what root of a sandbox is going to execute.
func TestAFolderOfSomebodyElseHoldsNoCopies(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"their cache":          func(dir string) error { return os.Chown(dir, 12345, 12345) },
		"a cache that is open": func(dir string) error { return os.Chmod(dir, 0o777) },
		"their folder in our cache": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/berth", 0o700), os.Chown(dir+"/berth", 12345, 12345))
		},
		"a link to nothing in our one": func(dir string) error { return os.Symlink("/nowhere", dir+"/berth") },
	} {
		t.Run(name, func(t *testing.T) {
			testlevel.Root(t, "be another user")
			cache := t.TempDir()
			if err := spoil(cache); err != nil {
				t.Fatal(err)
			}
			if dir, err := In(cache)(); err == nil {
				t.Errorf("got %q", dir)
			}
		})
	}
}

func TestEtcHoldsNothingSecret(t *testing.T) {
	etc := t.TempDir()
	for path, mode := range map[string]os.FileMode{
		"passwd": 0o644, "shadow": 0o644, "ssh/ssh_host_key": 0o644, "ssl/certs/ca.pem": 0o644, "ssl/private/key.pem": 0o644,
		"app/server.key": 0o644, "app/config": 0o644, "app/password": 0o640, "mine": 0o600, "profile.d/x.sh": 0o755, "hostname": 0o644,
		"pip.conf": 0o644, "xdg/pip/pip.conf": 0o644, "npmrc": 0o644, "gitconfig": 0o644, "apt/auth.conf.d/mirror.conf": 0o644,
	} {
		write(t, filepath.Join(etc, path), "host's "+path, mode)
	}
	const users = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nhost's passwd\n"
	write(t, filepath.Join(etc, "passwd"), users, 0o644)
	write(t, filepath.Join(etc, "apt/sources.list"), "deb https://me:secret@mirror.example/debian trixie main\n", 0o644)
	write(t, filepath.Join(etc, "apt/apt.conf.d/90proxy"), "Acquire::http::Proxy \"http://me:secret@proxy:3128\";\n", 0o644)
	write(t, filepath.Join(etc, "apt/sources.list.d/open.list"), "deb https://mirror.example:443/debian trixie main # me@example.org\n", 0o644)
	if err := os.Symlink("/run/somewhere", filepath.Join(etc, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(etc, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(etc, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := state(t).Etc(etc)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	err = filepath.WalkDir(c.Path, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, strings.TrimPrefix(path, c.Path+"/"))
		}
		return err
	})
	want := []string{
		"app/config", "apt/sources.list.d/open.list", "fstab", "hostname", "hosts", "link", "machine-id", "mtab", "passwd", "profile.d/x.sh", "resolv.conf", "shadow", "ssl/certs/ca.pem",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %v, %v\nwant %v", got, err, want)
	}
	for name, text := range map[string]string{"hostname": "berth\n", "shadow": "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n", "passwd": users} {
		if b, err := os.ReadFile(filepath.Join(c.Path, name)); err != nil || string(b) != text {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	if info, err := os.Stat(filepath.Join(c.Path, "profile.d/x.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("profile.d/x.sh: %v, %v", info, err)
	}
}

// What not everybody may read of a folder of the host is not there in a sandbox,
// whose root would own it, nor is what holds credentials by its name.
func TestTheCoverHidesWhatIsNotForEverybody(t *testing.T) {
	root, s := t.TempDir(), state(t)
	cover := func(root string) (*Copy, error) {
		hidden, err := s.Hidden(root)
		if err != nil {
			return nil, err
		}
		return s.Cover(root, hidden)
	}
	write(t, filepath.Join(root, "bin/true"), "x", 0o755)
	if c, err := cover(root); err != nil || c != nil {
		t.Fatalf("nothing to hide: %v, %v", c, err)
	}
	write(t, filepath.Join(root, "local/lib/app/secret"), "x", 0o600)
	write(t, filepath.Join(root, "local/lib/app/group"), "x", 0o640)
	write(t, filepath.Join(root, "local/lib/app/open"), "x", 0o644)
	write(t, filepath.Join(root, "etc/npmrc"), "x", 0o644)
	write(t, filepath.Join(root, "closed/a/b"), "x", 0o644)
	if err := os.Chmod(filepath.Join(root, "closed"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", filepath.Join(root, "local/lib/app/link")); err != nil {
		t.Fatal(err)
	}
	c, err := cover(root)
	if err != nil || c == nil {
		t.Fatalf("got %v, %v", c, err)
	}
	defer c.Close()
	var got []string
	err = filepath.WalkDir(c.Path, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var st unix.Stat_t
			if err = unix.Lstat(path, &st); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
				t.Errorf("%s is not a whiteout", path)
			}
			got = append(got, strings.TrimPrefix(path, c.Path+"/"))
		}
		return err
	})
	if want := []string{"closed", "etc/npmrc", "local/lib/app/group", "local/lib/app/secret"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %v, %v\nwant %v", got, err, want)
	}
	write(t, filepath.Join(root, "local/lib/app/later"), "x", 0o600)
	again, err := cover(root)
	if err != nil || again == nil || again.Path == c.Path {
		t.Fatalf("with one more: %v, %v", again, err)
	}
	defer again.Close()
}

// What was found is remembered as long as no name below the folder changes, and
// for an hour at most.
func TestALookForPrivateFilesIsRemembered(t *testing.T) {
	root, s := tree(t), state(t)
	look := func(want ...string) {
		t.Helper()
		if got, err := s.Hidden(root); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	file := filepath.Join(s.base, "hidden"+strings.ReplaceAll(root, "/", "."))
	look()
	write(t, filepath.Join(root, "lib/a/secret"), "x", 0o600)
	look("lib/a/secret")
	if err := os.Chmod(filepath.Join(root, "bin/file"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("lib/a/secret")
	old, ok := remembered(file)
	old.Time = old.Time.Add(-rememberFor)
	if err := old.remember(file); err != nil || !ok {
		t.Fatal(err, ok)
	}
	look("bin/file", "lib/a/secret")
	if err := os.Chmod(filepath.Join(root, "lib/d"), 0o700); err != nil {
		t.Fatal(err)
	}
	look("bin/file", "lib/a/secret", "lib/d")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("bin/file", "lib/a/secret", "lib/d")
}

// tree makes some folders.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "lib/a/b/c", "lib/d", "share/doc/x"} {
		write(t, filepath.Join(root, dir, "file"), "x", 0o644)
	}
	return root
}

// copied are the folders of a copy.
func copied(t *testing.T, c *Copy) (all []string) {
	t.Helper()
	err := filepath.WalkDir(c.Path, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is not a folder", path)
		}
		if rel, below := strings.CutPrefix(path, c.Path+"/"); below {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var folders = []string{"bin", "lib", "lib/a", "lib/a/b", "lib/a/b/c", "lib/d", "share", "share/doc", "share/doc/x"}

func TestSkeletonIsFoldersAlone(t *testing.T) {
	c, err := state(t).Skeleton(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := copied(t, c); !slices.Equal(got, folders) {
		t.Errorf("got %v, want %v", got, folders)
	}
}

func TestCopyIsMadeOnceByManyAtOnce(t *testing.T) {
	s, root := state(t), tree(t)
	var work sync.WaitGroup
	var mu sync.Mutex
	inodes := map[uint64]bool{}
	for range 16 {
		work.Go(func() {
			c, err := s.Skeleton(root)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			var st unix.Stat_t
			if err := unix.Stat(c.Path, &st); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			inodes[st.Ino] = true
		})
	}
	work.Wait()
	if len(inodes) != 1 {
		t.Errorf("%d copies were made", len(inodes))
	}
}

func TestDamagedCopyIsMadeAnew(t *testing.T) {
	for name, damage := range map[string]func(copyOf string) error{
		"a folder is gone": func(c string) error { return os.Remove(filepath.Join(c, "tree/lib/a/b/c")) },
		"a whole branch":   func(c string) error { return os.RemoveAll(filepath.Join(c, "tree/share")) },
		"the list":         func(c string) error { return os.Truncate(filepath.Join(c, "list"), 5) },
		"no list":          func(c string) error { return os.Remove(filepath.Join(c, "list")) },
		"everything":       func(c string) error { return os.RemoveAll(c) },
	} {
		t.Run(name, func(t *testing.T) {
			s, root := state(t), tree(t)
			used, err := s.Skeleton(root) // somebody still has the damaged one
			if err != nil {
				t.Fatal(err)
			}
			defer used.Close()
			if err = damage(filepath.Dir(used.Path)); err != nil {
				t.Fatal(err)
			}
			c, err := s.Skeleton(root)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := copied(t, c); !slices.Equal(got, folders) {
				t.Errorf("got %v, want %v", got, folders)
			}
		})
	}
}

func TestCopyFollowsTheHostAndOldOnesGo(t *testing.T) {
	s, root := state(t), tree(t)
	first, err := s.Skeleton(root)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "share/new/file"), "x", 0o644)
	second, err := s.Skeleton(root)
	if err != nil {
		t.Fatal(err)
	}
	if got := copied(t, second); !slices.Contains(got, "share/new") {
		t.Errorf("the copy does not have the new folder: %v", got)
	}
	if _, err = os.Stat(first.Path); err != nil {
		t.Errorf("a copy in use was removed: %v", err)
	}
	if err = errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "share/newer/file"), "x", 0o644)
	third, err := s.Skeleton(root)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	for _, old := range []*Copy{first, second} {
		if _, err := os.Stat(old.Path); err == nil {
			t.Errorf("an old copy that nobody uses is left: %s", old.Path)
		}
	}
}

// A builder that was killed leaves what it had begun.
func TestUnfinishedCopyIsRemoved(t *testing.T) {
	s, root := state(t), tree(t)
	unfinished := filepath.Join(s.base, "skeleton"+strings.ReplaceAll(root, "/", ".")+"-new-123")
	write(t, filepath.Join(unfinished, "tree/x/file"), "x", 0o644)
	c, err := s.Skeleton(root)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("it is still there")
	}
}

func TestEtcIsMadeAnewWhenAFileChanges(t *testing.T) {
	s, etc := state(t), t.TempDir()
	write(t, filepath.Join(etc, "passwd"), "one", 0o644)
	first, err := s.Etc(etc)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	again, err := s.Etc(etc)
	if err != nil || again.Path != first.Path {
		t.Errorf("nothing changed, and there are two copies: %v", err)
	}
	defer again.Close()
	later := time.Now().Add(time.Second)
	write(t, filepath.Join(etc, "passwd"), "two", 0o644)
	if err = os.Chtimes(filepath.Join(etc, "passwd"), later, later); err != nil {
		t.Fatal(err)
	}
	second, err := s.Etc(etc)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if b, err := os.ReadFile(filepath.Join(second.Path, "passwd")); err != nil || string(b) != "two" {
		t.Errorf("passwd is %q, %v", b, err)
	}
}

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
