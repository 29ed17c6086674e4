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
	env := func(root string) func(string) string {
		return func(name string) string { return map[string]string{"PATH": root + "/bin:" + root + "/local/bin"}[name] }
	}
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
		{"it removes one", nil, func(a string) error { return os.Remove(a + "/bin/cat") }, []string{"bin"}},
		{"it changes a mode", nil, func(a string) error { return os.Chmod(a+"/bin/cat", 0o700) }, []string{"bin/cat"}}, //nolint:gosec // a program
		{"both", func(m string) error { return os.WriteFile(m+"/bin/cat", []byte("new"), 0o600) }, func(a string) error {
			return os.WriteFile(a+"/local/bin/cat", nil, 0o600)
		}, []string{"local/bin/cat"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			machine, own := overMachine(t)
			root := own + "/root"
			s := &changes.Search{Made: changes.Made(own)}
			if s.Made == 0 {
				t.Skip("this kernel does not say when a file of a tmpfs was made: Linux 6.1 does")
			}
			s.After = changes.Moment()
			if tt.machine != nil {
				must(t, tt.machine(machine))
			}
			if tt.agent != nil {
				must(t, tt.agent(root))
			}
			guarded := s.Made
			for _, made := range []int64{0, guarded} { // without it, the machine's changes are found, too
				s = &changes.Search{After: s.After, Made: made}
				s.Resolve(changes.Command{Home: root + "/home", Dir: root, Env: env(root)})
				if got := found(s, root); made > 0 && !slices.Equal(got, tt.want) || made == 0 && len(got) == 0 {
					t.Errorf("with %d as the time of the sandbox's own files: found %q, want %q", made, got, tt.want)
				}
			}
		})
	}
}
