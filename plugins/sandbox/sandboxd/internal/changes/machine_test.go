package changes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/changes"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/listing"
	"github.com/berth-eval/berth/plugins/sandbox/system"
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
