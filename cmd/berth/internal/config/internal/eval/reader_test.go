package eval_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
)

// tree makes a folder with an experiment, and things beside it that it must
// not read.
func tree(t *testing.T) (dir, outside string) {
	t.Helper()
	top := t.TempDir()
	dir, outside = filepath.Join(top, "exp"), filepath.Join(top, "outside")
	for path, content := range map[string]string{
		"exp/a.txt": "a", "exp/sub/b.txt": "b", "exp/sub/deep/c.txt": "c", "exp/.hidden.txt": "h",
		"outside/secret.txt": "canary", "outside/sub/d.txt": "d", "exp-2/e.txt": "e",
	} {
		path = filepath.Join(top, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"inside.txt": "sub/b.txt", "escape.txt": "../outside/secret.txt", "absolute.txt": filepath.Join(outside, "secret.txt"),
		"folder": "../outside", "loop": "loop", "subfolder": "sub",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large.bin"), make([]byte, eval.MaxValue+1), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, outside
}

func TestFilesAreReadInTheFolderAlone(t *testing.T) {
	dir, outside := tree(t)
	for _, tt := range []struct {
		name, path string
		want       string
		err        string // a substring; empty means no error
		allowed    string // what it holds when outside may be read; empty: the same error
	}{
		{name: "plain", path: "a.txt", want: "a"},
		{name: "below", path: "./sub/../sub/b.txt", want: "b"},
		{name: "absolute inside", path: filepath.Join(dir, "a.txt"), want: "a"},
		{name: "link inside", path: "inside.txt", want: "b"},
		{name: "link to a folder inside", path: "subfolder/b.txt", want: "b"},
		{name: "dots", path: "../outside/secret.txt", err: "outside the experiment's folder: give --allow-read", allowed: "canary"},
		{name: "dots after a folder", path: "sub/../../outside/secret.txt", err: "outside the experiment's folder", allowed: "canary"},
		{name: "absolute", path: filepath.Join(outside, "secret.txt"), err: "outside the experiment's folder", allowed: "canary"},
		{name: "link", path: "escape.txt", err: "outside the experiment's folder", allowed: "canary"},
		{name: "absolute link", path: "absolute.txt", err: "outside the experiment's folder", allowed: "canary"},
		{name: "below a link", path: "folder/secret.txt", err: "outside the experiment's folder", allowed: "canary"},
		{name: "a folder whose name begins the same", path: "../exp-2/e.txt", err: "outside the experiment's folder"},
		{name: "system", path: "/etc/hostname", err: "outside the experiment's folder"},
		{name: "process", path: "/proc/self/environ", err: "outside the experiment's folder"},
		{name: "loop", path: "loop", err: "loop"},
		{name: "missing", path: "none.txt", err: "no such file"},
		{name: "missing outside", path: "../outside/none.txt", err: "outside the experiment's folder"},
		{name: "folder", path: "sub", err: "not a regular file"},
		{name: "FIFO", path: "fifo", err: "not a regular file"},
		{name: "large", path: "large.bin", err: "larger than 1 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(want, wantErr string, allow ...string) {
				r, err := eval.NewReader(dir, allow, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.Read(tt.path)
				if string(got) != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
					t.Errorf("Read(%q) allowing %q = %q, %v; want %q, error with %q", tt.path, allow, got, err, want, wantErr)
				}
				exists, err := r.Exists(tt.path)
				if exists != (want != "" || tt.name == "large") {
					t.Errorf("Exists(%q) allowing %q = %v, %v", tt.path, allow, exists, err)
				}
				if strings.Contains(wantErr, "outside") && err == nil {
					t.Errorf("Exists(%q) says whether there is a file where it may not look", tt.path)
				}
			}
			check(tt.want, tt.err)
			if tt.allowed != "" {
				check(tt.allowed, "", outside)
			}
		})
	}
}

func TestGlobLooksInTheFolderAlone(t *testing.T) {
	dir, outside := tree(t)
	for _, tt := range []struct {
		pattern string
		want    []string
		err     string
	}{
		{pattern: "*.txt", want: []string{".hidden.txt", "a.txt", "absolute.txt", "escape.txt", "inside.txt"}},
		{pattern: "./sub/*.txt", want: []string{"sub/b.txt"}},
		{pattern: "**/*.txt", want: []string{".hidden.txt", "a.txt", "absolute.txt", "escape.txt", "inside.txt", "sub/b.txt", "sub/deep/c.txt"}},
		{pattern: "{a,sub/b}.txt", want: []string{"a.txt", "sub/b.txt"}},
		{pattern: "none/*"},
		{pattern: dir + "/a*", want: []string{dir + "/a.txt", dir + "/absolute.txt"}},
		{pattern: "folder/*", err: "escapes"},
		{pattern: "../outside/*", err: "outside the experiment's folder"},
		{pattern: "sub/../../outside/*", err: "outside the experiment's folder"},
		{pattern: outside + "/*", err: "outside the experiment's folder"},
		{pattern: "/etc/*", err: "outside the experiment's folder"},
		{pattern: "[a", err: "not a pattern"},
		{pattern: strings.Repeat("{a,b}", 9), err: "not a pattern"},
	} {
		r, err := eval.NewReader(dir, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Glob(tt.pattern)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("Glob(%q) = %q, %v; want %q, error with %q", tt.pattern, got, err, tt.want, tt.err)
		}
	}
	r, err := eval.NewReader(dir, []string{outside}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Glob(outside + "/*.txt")
	if err != nil || !slices.Equal(got, []string{filepath.Join(outside, "secret.txt")}) {
		t.Errorf("Glob in an allowed folder = %q, %v", got, err)
	}
}

func TestGlobStopsInALargeFolder(t *testing.T) {
	dir, _ := tree(t)
	r, err := eval.NewReader(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.LimitGlob(10)
	if _, err := r.Glob("**/*.txt"); err == nil || !strings.Contains(err.Error(), "more than 10 files") {
		t.Errorf("got %v; want an error that says how many files are too many", err)
	}
	if _, err := r.Glob("sub/*.txt"); err != nil {
		t.Errorf("a narrower pattern: %v", err)
	}
}

func TestReaderRemembersWhatWasRead(t *testing.T) {
	dir, outside := tree(t)
	r, err := eval.NewReader(dir, []string{outside}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a.txt", filepath.Join(dir, "sub/b.txt"), filepath.Join(outside, "secret.txt"), "none.txt"} {
		_, _ = r.Read(path)
	}
	var names []string
	for name := range r.Files() {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{filepath.Join(outside, "secret.txt"), "a.txt", "sub/b.txt"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}
