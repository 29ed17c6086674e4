package runtimedir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/internal/testlevel"
)

// childEnv makes this program a process in namespaces of its own: it mounts
// what the variable says and prints what Dir comes to.
const childEnv = "BERTH_TEST_ROLE"

func TestMain(m *testing.M) {
	if mounts, child := os.LookupEnv(childEnv); child {
		os.Exit(inNamespace(strings.Fields(mounts)))
	}
	os.Exit(m.Run())
}

// machine is a machine for one test: folders that stand for those that
// everybody can write to, for a session's and for a home.
type machine struct {
	test                         *testing.T
	top, shm, tmp, session, home string
}

// uid is in the names of folders only.
const uid = 7

func newMachine(t *testing.T) *machine {
	t.Helper()
	top := "/tmp/r" + strings.ToLower(rand.Text()[:4]) // short, for sockets
	m := &machine{test: t, top: top, shm: top + "/m", tmp: top + "/t", session: top + "/x", home: top + "/h"}
	for dir, mode := range map[string]os.FileMode{m.shm: 0o777 | os.ModeSticky, m.tmp: 0o777 | os.ModeSticky, m.session: 0o700, m.home: 0o755} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	return m
}

// finder finds folders on it, with these variables.
func (m *machine) finder(env ...string) Finder {
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	return Finder{UID: uid, Getenv: func(name string) string { return vars[name] }, Memory: []string{m.shm}, Temp: []string{m.tmp}}
}

// of somebody else, in place of what is there.
func (m *machine) foreign(dir string) {
	m.test.Helper()
	testlevel.Root(m.test, "be another user")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, 12345, 12345)); err != nil {
		m.test.Fatal(err)
	}
}

func (m *machine) want(f Finder, dir string) {
	m.test.Helper()
	for range 2 { // the second time it is there
		got, err := f.Dir()
		if err != nil || got != dir {
			m.test.Errorf("got %q, %v; want %q", got, err, dir)
		}
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		m.test.Errorf("%s: %v, %v; want a folder with mode 0700", dir, info, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		m.test.Errorf("left in %s: %v, %v", dir, entries, err)
	}
}

func TestTheFirstFolderThatCanBeUsedIsUsed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		env   func(m *machine) []string
		spoil func(m *machine)
		want  func(m *machine) string
	}{
		{
			name: "the one that the user names",
			env:  func(m *machine) []string { return []string{Env + "=" + m.top + "/own", "XDG_RUNTIME_DIR=" + m.session} },
			want: func(m *machine) string { return m.top + "/own" },
		},
		{
			name: "the session's",
			env:  func(m *machine) []string { return []string{"XDG_RUNTIME_DIR=" + m.session} },
			want: func(m *machine) string { return m.session + "/berth" },
		},
		{
			name: "the session's is somebody else's, after su",
			env:  func(m *machine) []string { return []string{"XDG_RUNTIME_DIR=" + m.session, "HOME=" + m.home} },
			spoil: func(m *machine) {
				m.foreign(m.session)
				m.noMemory()
			},
			want: func(m *machine) string { return m.home + "/.local/state/berth" },
		},
		{
			name:  "others can write to the session's",
			env:   func(m *machine) []string { return []string{"XDG_RUNTIME_DIR=" + m.session} },
			spoil: func(m *machine) { _ = os.Chmod(m.session, 0o777); m.noMemory() },
			want:  func(m *machine) string { return m.tmp + "/berth-7" },
		},
		{
			name:  "HOME is not set",
			spoil: func(m *machine) { m.noMemory() },
			want:  func(m *machine) string { return m.tmp + "/berth-7" },
		},
		{
			name:  "HOME is somebody else's, after su",
			env:   func(m *machine) []string { return []string{"HOME=" + m.home} },
			spoil: func(m *machine) { m.foreign(m.home); m.noMemory() },
			want:  func(m *machine) string { return m.tmp + "/berth-7" },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if tt.spoil != nil {
				tt.spoil(m)
			}
			var env []string
			if tt.env != nil {
				env = tt.env(m)
			}
			m.want(m.finder(env...), tt.want(m))
		})
	}
}

// noMemory keeps the machine from having a folder in memory.
func (m *machine) noMemory() { m.shm = m.top + "/none" }

func TestANameThatSomebodyElseHasTakenIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(m *machine, path string){
		"a folder of theirs":            func(m *machine, path string) { m.foreign(path) },
		"a folder of ours that is open": func(_ *machine, path string) { _ = os.Mkdir(path, 0o700); _ = os.Chmod(path, 0o755) },
		"a link to a folder of ours":    func(m *machine, path string) { _ = os.Symlink(m.session, path) },
		"a file":                        func(_ *machine, path string) { _ = os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.noMemory()
			take(m, m.home+"/berth-7")
			take(m, m.tmp+"/berth-7")
			if err := os.Chmod(m.home, 0o700); err != nil {
				t.Fatal(err)
			}
			f := m.finder("TMPDIR=" + m.home)
			if dir, err := f.Dir(); err == nil || !strings.Contains(err.Error(), Env) {
				t.Errorf("got %q, %v; want an error that names %s", dir, err, Env)
			}
			f.Temp = append(f.Temp, m.session)
			m.want(f, m.session+"/berth-7")
		})
	}
}

func TestAFolderWhoseParentIsSomebodyElsesIsNotUsed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.noMemory()
	theirs := m.top + "/y"
	m.foreign(theirs)
	m.want(m.finder("TMPDIR="+theirs), m.tmp+"/berth-7")
	if err := os.Chmod(m.tmp, 0o777); err != nil { // not sticky: names in it can be changed by everybody
		t.Fatal(err)
	}
	if dir, err := m.finder().Dir(); err == nil || !strings.Contains(err.Error(), "not sticky") || !strings.Contains(err.Error(), Env) {
		t.Errorf("got %q, %v; want an error that says why and names %s", dir, err, Env)
	}
}

func TestTheDiskIsNotInMemory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if InMemory(m.tmp) {
		t.Skip("/tmp is in memory, and this is about one that is not: set TMPDIR to a folder on a disk")
	}
	if got := m.finder("TMPDIR=" + m.tmp).Disk(); got != m.tmp+"/berth-7" {
		t.Errorf("got %q, want one in %s", got, m.tmp)
	}
	memory, err := os.MkdirTemp("/dev/shm", "r")
	if err != nil {
		testlevel.Cannot(t, testlevel.NoMemory, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(memory) })
	if got := m.finder("TMPDIR=" + memory).Disk(); got != "" {
		t.Errorf("got %q for a TMPDIR in memory", got)
	}
}

// What a folder cannot take any more is passed over, and what is in it is still
// found.
func TestAFolderThatIsFullOrReadOnlyIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"full", "almost", "ro"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			if err := os.Mkdir(m.session+"/berth", 0o700); err != nil { // "full" has another disk in its place
				t.Fatal(err)
			}
			got := m.child(nil, how+":"+m.session+" "+how+":"+m.home, "XDG_RUNTIME_DIR="+m.session, "HOME="+m.home)
			if !strings.HasPrefix(got, m.tmp+"/berth-7\n") {
				t.Errorf("got %q, want %s/berth-7", got, m.tmp)
			}
			if want := "also " + m.session + "/berth\n"; how != "full" && !strings.Contains(got, want) {
				t.Errorf("got %q, want %q in it", got, want)
			}
		})
	}
}

// child runs Dir in a process with mounts of its own.
func (m *machine) child(attr *syscall.SysProcAttr, mounts string, env ...string) string {
	t := m.test
	t.Helper()
	if attr == nil {
		attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Getuid() != 0 {
			attr.Cloneflags |= syscall.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
	}
	self := m.top + "/self" // where another user may execute it
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		syscall.ForkLock.RLock()              // a child of another test would hold it open for writing: text file busy
		err = os.WriteFile(self, text, 0o755) //nolint:gosec // to be executed
		syscall.ForkLock.RUnlock()
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(env, childEnv+"="+mounts, "TEST_TMP="+m.tmp)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || strings.Contains(string(out), "no mount:") {
		testlevel.Cannot(t, testlevel.NoNamespaces, fmt.Sprintf("%v: %s", err, out))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// inNamespace is that process.
func inNamespace(mounts []string) int {
	say := func(text string) { _, _ = os.Stdout.WriteString(text + "\n") }
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, m := range mounts {
		how, dir, _ := strings.Cut(m, ":")
		switch how {
		case "full":
			err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"))
			if f, openErr := os.Create(filepath.Join(dir, "all")); openErr == nil {
				_, _ = f.Write(make([]byte, 128<<10)) // to the last page
				_ = f.Close()
			}
		case "almost":
			err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"))
		case "ro":
			err = errors.Join(err, unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	if err != nil {
		say("no mount: " + err.Error())
		return 0
	}
	f := Finder{UID: uid, Getenv: os.Getenv, Temp: []string{os.Getenv("TEST_TMP")}}
	dir, err := f.Dir()
	if err != nil {
		say(err.Error())
		return 1
	}
	say(dir)
	for _, d := range f.Dirs() {
		if d != dir {
			say("also " + d)
		}
	}
	return 0
}
