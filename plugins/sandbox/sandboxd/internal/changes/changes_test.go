package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/listing"
	"github.com/berth-eval/berth/plugins/sandbox/system"
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

// found are the files below root that changed.
func found(s *changes.Search, root string) (names []string) {
	for _, f := range s.Files {
		if rest, ok := strings.CutPrefix(f, root+"/"); ok {
			names = append(names, rest)
		}
	}
	return names
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
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	write(t, root+"/script", "#!"+root+"/venv/python -u\n")
	write(t, root+"/tests/test.sh", "#! "+root+"/other/sh\n")
	s := &changes.Search{After: changes.Moment()}
	write(t, root+"/venv/python", "")
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

// overMachine makes the folders of a machine, and over them an overlay that a sandbox
// writes to: own/root, on a file system of its own.
func overMachine(t *testing.T) (machine, own string) {
	t.Helper()
	dir := t.TempDir()
	machine, own = filepath.Join(dir, "machine"), filepath.Join(dir, "own")
	for _, name := range []string{"bin/cat", "local/bin/other", "lib/libc.so.6", "spare"} {
		write(t, filepath.Join(machine, name), "#!/bin/sh\n")
	}
	must(t, os.Mkdir(own, 0o750))
	changes.Moment() // from here on, what is made is younger
	if err := unix.Mount("berth", own, "tmpfs", 0, ""); err != nil {
		testlevel.Root(t, "mount a tmpfs")
		testlevel.Cannot(t, testlevel.NoMounts, err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(own, unix.MNT_DETACH)) })
	for _, name := range []string{"upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(own, name), 0o750))
	}
	root := own + "/root"
	must(t, unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", machine, own, own)))
	t.Cleanup(func() { must(t, unix.Unmount(root, 0)) })
	return machine, own
}

// Where the system folders are overlays over those of the machine, what the machine
// changes meanwhile is not the agent's. What the agent changes is, also in a folder
// that the machine changes, too.
func TestWhatTheMachineChangesIsNotTheAgents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		machine, agent func(dir string) error // of the lower folder, of the overlay
		want           []string
	}{
		{"the machine writes to a program", func(m string) error { return os.WriteFile(m+"/bin/cat", []byte("new"), 0o600) }, nil, nil},
		{"it replaces one", func(m string) error { return os.Rename(m+"/spare", m+"/bin/cat") }, nil, nil},
		{"it adds one", func(m string) error { return os.WriteFile(m+"/local/bin/tool", nil, 0o600) }, nil, nil},
		{"it removes one", func(m string) error { return os.Remove(m + "/bin/cat") }, nil, nil},
		{"it adds a folder", func(m string) error {
			return os.MkdirAll(m+"/lib/glibc-hwcaps/v3", 0o750)
		}, nil, nil},
		{"the agent writes to a program", nil, func(a string) error { return os.WriteFile(a+"/bin/cat", []byte("evil"), 0o600) }, []string{"bin/cat"}},
		{"it replaces one", nil, func(a string) error { return os.Rename(a+"/spare", a+"/bin/cat") }, []string{"bin/cat"}},
		{"it adds one", nil, func(a string) error { return os.WriteFile(a+"/local/bin/cat", nil, 0o600) }, []string{"local/bin/cat"}},
		{"it removes one", nil, func(a string) error { return os.Remove(a + "/bin/cat") }, []string{"bin/cat"}},
		{"it changes a mode", nil, func(a string) error { return os.Chmod(a+"/bin/cat", 0o700) }, []string{"bin/cat"}}, //nolint:gosec // a program
		{"both", func(m string) error { return os.WriteFile(m+"/bin/cat", []byte("new"), 0o600) }, func(a string) error {
			return os.WriteFile(a+"/local/bin/cat", nil, 0o600)
		}, []string{"local/bin/cat"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			machine, own := overMachine(t)
			root := own + "/root"
			made := changes.Made(own)
			if made == 0 {
				t.Skip("this kernel does not say when a file of a tmpfs was made: Linux 6.1 does")
			}
			before, err := listing.Make(system.Places{Roots: []string{root + "/bin", root + "/lib", root + "/local"}}, 0)
			must(t, err)
			changes.Moment()
			if tt.machine != nil {
				must(t, tt.machine(machine))
			}
			if tt.agent != nil {
				must(t, tt.agent(root))
			}
			now, err := before.Again()
			must(t, err)
			all := before.Compare(now)
			got := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return changes.OfMachine(name, made) })
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], root+"/")
			}
			if !slices.Equal(got, tt.want) || len(all) == 0 { // all is what is found without it
				t.Errorf("found %q of %q, want %q", got, all, tt.want)
			}
		})
	}
}
