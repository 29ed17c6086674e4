// Package modetest runs tests of sandboxes as each kind of user: the host's
// root, an ordinary user with one id, and one with subordinate ids. Started by
// root it starts a process for each subtest of the others; started by an ordinary
// user it runs what that user is, and says what it left out.
//
// It is for tests only, and changes nothing on the machine: a user's
// subordinate ids are written to files that only its own mount namespace sees.
package modetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/internal/testlevel"
)

// The environment of the processes that it starts.
const (
	markMode  = "BERTH_TEST_MODE"  // name of the mode this process is to run
	markStage = "BERTH_TEST_STAGE" // set in the process that prepares a mount namespace
	markTools = "BERTH_TEST_TOOLS" // folder with the built programs
	markPlace = "BERTH_TEST_PLACE" // the Place this process is in
	markCan   = "BERTH_TEST_CAN"   // set in the process that tries this machine out
)

// User is the ordinary user that root becomes: an id without an account, but for
// subordinate ids, which need a name.
const User = 54321

// firstSub are the subordinate ids that the user gets.
const firstSub = 0x30000000

// Process is what ids.Enter said of this process; nil before Main.
var Process *ids.Process

// Tools is a folder with the programs that Main built, readable by everybody.
var Tools string

// Init is the path of local-init, if Main was asked to build it.
func Init() string { return filepath.Join(Tools, "libexec", "local-init") }

// Started is Main for tests that start a plugin, and so must not be inside what
// it enters: Process then says only which mode the plugin will be in.
func Started(m *testing.M, packages ...string) int {
	started = true
	return Main(m, packages...)
}

var started bool

// expected is the mode that a plugin started by us finds.
func expected() *ids.Process {
	p := &ids.Process{Mode: ids.OneID, UID: os.Getuid(), GID: os.Getgid()}
	switch {
	case p.UID == 0:
		p.Mode = ids.RealRoot
	case ids.HasRanges(p.UID):
		p.Mode = ids.Held
	}
	return p
}

// Main is to be called from TestMain with the packages to build, by path
// relative to the test's folder. It returns the exit code.
func Main(m *testing.M, packages ...string) int {
	if os.Getenv(markCan) != "" {
		return fail(tryOut())
	}
	if os.Getenv(markStage) != "" {
		if err := becomeUser(); err != nil {
			return fail(err)
		}
		return 0 // the process that it started ran the tests
	}
	var err error
	if Tools = os.Getenv(markTools); Tools == "" {
		if Tools, err = os.MkdirTemp("", "berth-test-"); err != nil {
			return fail(err)
		}
		defer func() { _ = os.RemoveAll(Tools) }()
		if err = errors.Join(os.Chmod(Tools, 0o755), build(packages)); err != nil { // others must execute them
			return fail(err)
		}
	}
	if started {
		Process = expected()
	} else if Process, err = ids.Enter(); err != nil { // in mode "ranges" it returns in another process
		return fail(err)
	}
	return m.Run()
}

func fail(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "modetest:", err)
	return 1
}

// build builds packages into Tools, and local-init where the plugin looks for it.
func build(packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	cmd := exec.Command("go", append([]string{"build", "-o", Tools + "/"}, packages...)...) //nolint:noctx // the test's own deadline is enough
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %q: %w\n%s", packages, err, out)
	}
	beside := filepath.Join(Tools, "local-init")
	if _, err := os.Stat(beside); err != nil {
		return nil //nolint:nilerr // it was not asked for
	}
	return errors.Join(os.Mkdir(filepath.Dir(Init()), 0o755), os.Rename(beside, Init()))
}

// names of the modes, as subtests.
var names = map[ids.Mode]string{ids.RealRoot: "root", ids.Held: "ranges", ids.OneID: "one"}

// machine says whether sandboxes can be made here, by other means than those
// that are tested: a fault of ours must not look like one of the machine.
var machine = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // a moment
	cmd.Env = []string{markCan + "=1"}
	one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		UidMappings: one(os.Geteuid()), GidMappings: one(os.Getegid()),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
})

// tryOut mounts what a sandbox cannot do without.
func tryOut() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// Place is a machine on which sandboxes cannot be made, or only with a detour,
// put up for one user.
type Place string

// The places.
const (
	MaskedProc  Place = "masked-proc"  // as in a container: a new /proc is refused
	OverlaidUsr Place = "overlaid-usr" // as in a container, for root: ids of /usr cannot be shifted
	MountedUsr  Place = "mounted-usr"  // has mounts below /usr: see mountBelowUsr
)

// In runs do in that place: as root in OverlaidUsr, else as an ordinary user
// with one id.
func In(t *testing.T, place Place, do func(t *testing.T)) {
	t.Helper()
	mode := ids.OneID
	if place == OverlaidUsr {
		mode = ids.RealRoot
	}
	as(t, string(place), mode, place, func(t *testing.T, _ ids.Mode) { do(t) })
}

// EachIn runs do in that place as each kind of user.
func EachIn(t *testing.T, place Place, do func(t *testing.T, mode ids.Mode)) {
	t.Helper()
	for _, mode := range modes {
		as(t, string(place)+" "+names[mode], mode, place, do)
	}
}

// Each runs do once as each kind of user that this process can become, or with
// -short only as the kind that it is.
func Each(t *testing.T, do func(t *testing.T, mode ids.Mode)) {
	t.Helper()
	for _, mode := range modes {
		as(t, names[mode], mode, "", do)
	}
}

var modes = []ids.Mode{ids.RealRoot, ids.Held, ids.OneID}

// as runs a subtest as a kind of user in a place; empty: on the machine as it is.
func as(t *testing.T, name string, mode ids.Mode, place Place, do func(t *testing.T, mode ids.Mode)) {
	t.Helper()
	only := os.Getenv(markMode)
	if only != "" && only != names[mode] {
		return // the process that started us runs it
	}
	t.Run(name, func(t *testing.T) {
		switch {
		case place != "" && os.Getenv(markPlace) == string(place):
			do(t, mode)
		case machine() != nil:
			testlevel.Cannot(t, testlevel.NoNamespaces, machine())
		case place == "" && Process.Mode == mode:
			do(t, mode)
		case only != "" && place == "":
			t.Fatalf("this process should be in mode %q and is in mode %q: %s", only, names[Process.Mode], Process.Why)
		case os.Getuid() != 0:
			testlevel.Root(t, "become users with other kinds of ids, and mount where sandboxes are tried")
		case place == "" && !testlevel.E2E():
			t.Skip("tests of other kinds of users take long: run make test-engines")
		default:
			become(t, mode, place)
		}
	})
}

// becomeUser runs in its own mount namespace: it gives the user
// subordinate ids there, or takes away what it has, and becomes the user.
func becomeUser() error {
	ranges := os.Getenv(markStage) == names[ids.Held]
	dir, err := os.MkdirTemp("", "berth-sub-")
	if err != nil {
		return err
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	text := map[string]string{"passwd": string(passwd) + fmt.Sprintf("berthtest:x:%d:%d::/nonexistent:/bin/sh\n", User, User), "subuid": "", "subgid": ""}
	if ranges {
		text["subuid"] = fmt.Sprintf("berthtest:%d:65536\n", firstSub)
		text["subgid"] = text["subuid"]
	}
	for file, text := range text {
		if _, err := os.Stat("/etc/" + file); err != nil {
			continue
		}
		own := filepath.Join(dir, file)
		if err := os.WriteFile(own, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(own, "/etc/"+file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", own, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := openTun(); err != nil {
		return err
	}
	if err := putUp(Place(os.Getenv(markPlace))); err != nil {
		return err
	}
	env := []string{}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, markStage+"=") {
			env = append(env, e)
		}
	}
	if os.Getenv(markStage) == names[ids.RealRoot] {
		return syscall.Exec("/proc/self/exe", os.Args, env)
	}
	return asUser(env)
}

// asUser continues as the user.
func asUser(env []string) error {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(User), syscall.Setuid(User)); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, env)
}

// openTun gives the user the device for virtual networks, which most machines
// give to everybody and some to root alone.
func openTun() error {
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return nil //nolint:nilerr // then it is not in use
	}
	if err := unix.Mount("none", "/dev/net", "tmpfs", 0, ""); err != nil {
		return err
	}
	return errors.Join(unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))), os.Chmod("/dev/net/tun", 0o666))
}

func cacheOf(uid int) string { return filepath.Join(Tools, fmt.Sprintf("cache-%d", uid)) }

// Cache is a folder for copies of the host that this user's tests share: the
// skeleton takes seconds to make.
func Cache() (string, error) {
	dir := cacheOf(Process.UID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// become runs this subtest again in a process of another user, or in another place.
func become(t *testing.T, mode ids.Mode, place Place) {
	t.Helper()
	if mode == ids.Held {
		testlevel.Program(t, "newuidmap", "uidmap")
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	if full := flag.Lookup("test.run").Value.String(); strings.Count(full, "/") > strings.Count(t.Name(), "/") {
		pattern = full
	}
	cache := cacheOf(User)
	if err := os.Mkdir(cache, 0o700); err == nil {
		testlevel.Must(t, os.Chown(cache, User, User))
	}
	home, err := os.MkdirTemp("", "berth-home-") //nolint:usetesting // the user cannot enter the folder of t.TempDir
	testlevel.Must(t, err)
	defer os.RemoveAll(home)
	testlevel.Must(t, os.Chown(home, User, User))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run="+pattern)
	cmd.Dir = "/"
	cmd.Env = []string{
		"BERTH_TEST=" + os.Getenv("BERTH_TEST"), "PATH=" + os.Getenv("PATH"), "HOME=" + home, markMode + "=" + names[mode], markTools + "=" + Tools,
		markStage + "=" + names[mode], markPlace + "=" + string(place),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("in its own process (%s %s):\n%s", names[mode], place, out)
	if err != nil || strings.Contains(string(out), "no tests to run") {
		t.Errorf("in its own process: %v", err)
	}
}

// putUp changes what this mount namespace sees.
func putUp(place Place) error {
	switch place {
	case OverlaidUsr:
		dir, err := os.MkdirTemp(os.Getenv(markTools), "usr-")
		if err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(dir+"/u", 0o755), os.Mkdir(dir+"/w", 0o755)); err != nil {
			return err
		}
		return unix.Mount("none", "/usr", "overlay", 0, "lowerdir=/usr,upperdir="+dir+"/u,workdir="+dir+"/w")
	case MaskedProc:
		return unix.Mount("none", "/proc/irq", "tmpfs", unix.MS_RDONLY, "")
	case MountedUsr:
		return mountBelowUsr()
	default:
		return nil
	}
}

// mountBelowUsr mounts on folders and files below /usr, also on one another.
func mountBelowUsr() error {
	const src, space, nested, closed = "/usr/src", "/usr/src/with space, comma", "/usr/src/with space, comma/nested:1", "/usr/src/closed"
	tmpfs := func(at, mode string) func() error {
		return func() error { return unix.Mount("none", at, "tmpfs", 0, "mode="+mode) }
	}
	folder := func(at string) func() error { return func() error { return os.Mkdir(at, 0o755) } }
	file := func(at string, mode os.FileMode) func() error {
		return func() error { return os.WriteFile(at, []byte("#!/bin/sh\necho "+at+"\n"), mode) }
	}
	over := func(from, at string) func() error {
		return func() error { return unix.Mount(from, at, "", unix.MS_BIND, "") }
	}
	for _, step := range []func() error{
		tmpfs(src, "755"), file(src+"/tool", 0o755), file(src+"/secret", 0o600), file(src+"/pip.conf", 0o644),
		file(src+"/under", 0o644), over(src+"/tool", src+"/under"), // as container engines do with /etc/hosts and drivers
		folder(space), file(space+"/tool", 0o755), folder(space + "/beside"), file(space+"/beside/tool", 0o755),
		folder(nested), tmpfs(nested, "755"), file(nested+"/tool", 0o755), file(nested+"/secret", 0o600), file(nested+"/npmrc", 0o644),
		folder(closed), tmpfs(closed, "700"), file(closed+"/secret", 0o644), // what only root may enter
		over(src+"/tool", "/usr/lib/os-release"),
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
