package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
)

// write makes a program.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a tree like a system's
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// system is a tree with programs, libraries and a home, and a command there.
func system(t *testing.T) (root string, c changes.Command) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, name := range []string{
		"usr/bin/cat", "usr/bin/mawk", "usr/bin/gawk", "usr/lib/libc.so.6", "usr/lib/readme", "usr/lib/glibc-hwcaps/v3/libm.so.6",
		"usr/lib/python3.11/site-packages/pip/x.py", "usr/lib/python3/dist-packages/a.pth", "home/.bashrc", "opt/tool/tool", "rc",
	} {
		write(t, filepath.Join(root, name), "#!/bin/sh\n")
	}
	must(t, os.Mkdir(filepath.Join(root, "alternatives"), 0o750), os.Mkdir(filepath.Join(root, "local"), 0o750),
		os.Symlink(root+"/alternatives/awk", root+"/usr/bin/awk"), os.Symlink("../../usr/bin/mawk", root+"/alternatives/awk"),
		os.Symlink("../../opt/tool/tool", root+"/usr/bin/tool"), os.Symlink("usr/bin", root+"/bin"))
	env := map[string]string{"PATH": root + "/local:" + root + "/bin", "BASH_ENV": root + "/rc"}
	return root, changes.Command{Home: root + "/home", Dir: root, Env: func(name string) string { return env[name] }}
}

// found are the files below root that changed.
func found(s *changes.Search, root string) (names []string) {
	for _, f := range s.Files {
		if rest, ok := strings.CutPrefix(f, root+"/"); ok {
			names = append(names, rest)
		}
	}
	return names
}

func TestWhatACommandResolvesTo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(root string) error
		want   []string
	}{
		{"nothing", func(string) error { return nil }, nil},
		{"what is not looked at", func(r string) error {
			return os.WriteFile(r+"/usr/lib/python3.11/site-packages/pip/x.py", nil, 0o600)
		}, nil},
		{"written in place, times set back", func(r string) error {
			info, err := os.Stat(r + "/usr/bin/cat")
			if err != nil {
				return err
			}
			if err = os.WriteFile(r+"/usr/bin/cat", []byte("evil"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(r+"/usr/bin/cat", info.ModTime(), info.ModTime())
		}, []string{"usr/bin/cat"}},
		{"moved over", func(r string) error { return os.Rename(r+"/opt/tool/tool", r+"/usr/bin/cat") }, []string{"usr/bin/cat"}},
		{"linked in, hard", func(r string) error { return os.Link(r+"/opt/tool/tool", r+"/local/cat") }, []string{"local/cat", "opt/tool/tool"}},
		{"linked in", func(r string) error { return os.Symlink(r+"/usr/bin/gawk", r+"/local/cat") }, []string{"local/cat"}},
		{"a link elsewhere is turned", func(r string) error {
			return os.Rename(r+"/usr/bin/awk", r+"/alternatives/awk")
		}, []string{"usr/bin"}},
		{"what a link leads to", func(r string) error { return os.WriteFile(r+"/opt/tool/tool", nil, 0o600) }, []string{"opt/tool/tool"}},
		{"the link of a folder", func(r string) error {
			if err := os.Remove(r + "/bin"); err != nil {
				return err
			}
			return os.Symlink("opt/tool", r+"/bin")
		}, []string{"bin"}},
		{"removed", func(r string) error { return os.Remove(r + "/usr/bin/cat") }, []string{"usr/bin"}},
		{"start-up files", func(r string) error {
			for _, f := range []string{"/home/.bashrc", "/rc", "/home/.local/lib/python3.11/site-packages/usercustomize.py"} {
				if err := os.MkdirAll(filepath.Dir(r+f), 0o750); err != nil {
					return err
				}
				if err := os.WriteFile(r+f, nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, []string{"home/.bashrc", "rc", "home/.local/lib/python3.11/site-packages/usercustomize.py"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root, c := system(t)
			s := &changes.Search{After: changes.Moment()}
			must(t, tt.change(root))
			s.Resolve(c)
			if got := found(s, root); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// A prefix is that of a folder of programs: its libraries, and its Pythons, are
// those of its programs.
func TestLibrariesAndPythonsBesidePrograms(t *testing.T) {
	t.Parallel()
	root, c := system(t)
	c.Env = func(name string) string { return map[string]string{"PATH": root + "/usr/bin"}[name] }
	must(t, os.Mkdir(root+"/usr/lib/python3.12", 0o750), os.Symlink(root+"/etc/site.py", root+"/usr/lib/python3.12/sitecustomize.py"),
		os.Symlink("../../opt/blas/libblas.so", root+"/usr/lib/libblas.so.3"))
	s := &changes.Search{After: changes.Moment()} // the links are older
	for _, f := range []string{
		"/usr/lib/libc.so.6", "/usr/lib/readme", "/usr/lib/glibc-hwcaps/v3/libm.so.6", "/usr/lib/python3.11/site-packages/evil.pth",
		"/usr/lib/python3.11/site-packages/good.py", "/usr/lib/python3/dist-packages/a.pth", "/usr/lib/python3.11/sitecustomize.py",
		"/usr/lib/python311.zip", "/usr/lib64/python3.11/sitecustomize.py", "/etc/site.py", "/opt/blas/libblas.so",
	} {
		write(t, root+f, "")
	}
	s.Resolve(c)
	want := []string{
		"usr/lib/libc.so.6", "usr/lib/glibc-hwcaps/v3/libm.so.6", "usr/lib/python3/dist-packages/a.pth", "usr/lib/python3.11/sitecustomize.py",
		"usr/lib/python3.11/site-packages/evil.pth", "usr/lib/python311.zip", "usr/lib64/python3.11/sitecustomize.py", "etc/site.py",
		"opt/blas/libblas.so",
	}
	got := found(s, root)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// The clock that stamps files stands still for milliseconds: without waiting,
// what was written just before looks like what was written just after.
func TestAMomentTellsBeforeFromAfter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 50 {
		before, after := fmt.Sprint(dir, "/before", i), fmt.Sprint(dir, "/after", i)
		write(t, before, "")
		s := &changes.Search{After: changes.Moment()}
		write(t, after, "")
		s.File(before)
		s.File(after)
		if !slices.Equal(s.Files, []string{after}) {
			t.Fatalf("round %d: found %q, want what was written after", i, s.Files)
		}
	}
}

func TestProgramsAndTheirInterpreters(t *testing.T) {
	t.Parallel()
	root, _ := system(t)
	write(t, root+"/script", "#!"+root+"/venv/python -u\n")
	s := &changes.Search{After: changes.Moment(), Placed: []string{root + "/tests"}}
	write(t, root+"/venv/python", "")
	write(t, root+"/tests/test.sh", "#! "+root+"/other/sh\n")
	write(t, root+"/other/sh", "#!"+root+"/other/sh\n") // a circle
	s.Program(root + "/script")
	s.Program(root + "/tests/test.sh")
	s.Program(root + "/missing")
	if got, want := found(s, root), []string{"venv/python", "other/sh"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

func TestTheWordsOfAService(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		argv         []string
		text         string // of app/serve.py, in the image
		changed      string
		named, calls []string
	}{
		{[]string{"python3", "-u", "serve.py"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"sh", "-c", "cd /; exec python3 ROOT/app/serve.py >ROOT/app/log 2>&1"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"sh", "-c", "python3 serve.py > log"}, "", "app/log", nil, nil},
		{[]string{"gunicorn", "serve:app"}, "", "app/serve.py", []string{"app/serve.py"}, nil},
		{[]string{"python3", "-m", "lib.main"}, "", "app/lib/main.py", []string{"app/lib/main.py"}, nil},
		{[]string{"python3", "serve.py"}, "from lib.main import run\n", "app/lib/main.py", nil, []string{"app/lib/main.py"}},
		{[]string{"./serve.py"}, "#!/bin/sh\nwhile :; do $(tick); done\n", "app/tick", nil, []string{"app/tick"}},
		{[]string{"sh", "-eu", "log"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"perl", "-w", "ROOT/app/log"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"python3.11", "."}, "", "app/log", nil, nil},
		{[]string{"sh", "-c", "cat log; while :; do . ./log; done"}, "", "app/log", []string{"app/log"}, nil},
		{[]string{"cat", "log"}, "", "app/log", nil, nil},
		{[]string{"./serve.py"}, "#!/bin/sh\n. ./log\n", "app/log", nil, []string{"app/log"}},
		{[]string{"./serve.py"}, "#!/bin/sh\ncat ./log\n", "app/log", nil, nil},
		{[]string{"tick", "app/nothing"}, "", "app/other.py", nil, nil},
	} {
		t.Run(strings.Join(tt.argv, " "), func(t *testing.T) {
			t.Parallel()
			root, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			for _, name := range []string{"app/lib/main.py", "app/tick", "app/other.py"} {
				write(t, filepath.Join(root, name), "#!/bin/sh\n")
			}
			write(t, root+"/app/serve.py", tt.text)
			must(t, os.WriteFile(root+"/app/log", nil, 0o600))
			s := &changes.Search{After: changes.Moment()}
			must(t, os.Chtimes(filepath.Join(root, tt.changed), time.Unix(0, 0), time.Unix(0, 0)))
			for i := range tt.argv {
				tt.argv[i] = strings.ReplaceAll(tt.argv[i], "ROOT", root)
			}
			p := changes.Place{Dir: root + "/app", Lookup: func(string) string { return "" }}
			s.Words(tt.argv, p)
			if got := found(s, root); !slices.Equal(got, tt.named) {
				t.Errorf("the command names %q, want %q", got, tt.named)
			}
			s.Follow(p)
			if got := found(s, root); !slices.Equal(got, slices.Concat(tt.named, tt.calls)) {
				t.Errorf("with what that names: %q, want %q", got, tt.calls)
			}
		})
	}
}
