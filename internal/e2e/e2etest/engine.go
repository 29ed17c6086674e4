package e2etest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// Help is the end of the reason of a skip.
const Help = ": run scripts/engines-for-tests --debian as root to have it tried"

// helpOf is Help for what needs an image.
func helpOf(image string) string {
	if strings.Contains(image, "chromium") {
		return strings.Replace(Help, "--debian", "--chromium", 1)
	}
	return Help
}

// Engine is a container engine that can be used here, with its user.
// scripts/engines-for-tests starts them.
type Engine struct {
	Name   string // of the plugin, and of the engine's own command
	Socket string // unix:///path
	User   *user.User
}

// FindEngine returns the engine with that name, docker or podman. It skips the
// test with the reason if there is none that its user can use, or if it lacks one of
// the images.
func FindEngine(t *testing.T, name string, images ...string) Engine {
	t.Helper()
	me, err := user.Current()
	if err != nil { // no account
		me = &user.User{Uid: strconv.Itoa(os.Getuid()), Gid: strconv.Itoa(os.Getgid()), HomeDir: os.Getenv("HOME")}
	}
	e := Engine{Name: name, User: me}
	sockets := []string{"/run/berth-engines/docker.sock", "/var/run/docker.sock"}
	if name == "podman" {
		if me.Uid == "0" {
			if e.User, err = user.Lookup("berth-ci"); err != nil {
				t.Skip("there is no user berth-ci for Podman, which is not tried as root" + Help)
			}
		}
		sockets = []string{"/run/user/" + e.User.Uid + "/podman/podman.sock"}
	}
	for _, s := range sockets {
		if info, statErr := os.Stat(s); statErr == nil && info.Mode().Type() == fs.ModeSocket {
			e.Socket = "unix://" + s
			break
		}
	}
	if e.Socket == "" {
		t.Skipf("no %s runs here, at %s%s", name, strings.Join(sockets, " or "), Help)
	}
	if _, err = exec.LookPath(name); err != nil {
		t.Skipf("the program %s is not installed%s", name, Help)
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", strings.TrimPrefix(e.Socket, "unix://"))
	switch {
	case errors.Is(err, fs.ErrPermission):
		t.Skipf("user id %s may not use %s: add its user to the group of %s", me.Uid, name, strings.TrimPrefix(e.Socket, "unix://"))
	case err != nil:
		t.Skipf("no %s answers at %s%s", name, strings.TrimPrefix(e.Socket, "unix://"), Help)
	}
	_ = conn.Close()
	for _, image := range images {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		out, err := e.Ask(ctx, t, "image", "inspect", "--format", "{{.Id}}", image).CombinedOutput()
		cancel()
		if err != nil {
			t.Logf("%v\n%s", err, out)
			t.Skipf("%s has no %s%s", name, image, helpOf(image))
		}
	}
	return e
}

// Release makes a folder with the programs of a release in its bin: berth, the plugin
// of the engine, and those that are named. The folder is for the engine's user: see
// [Engine.Own]. tree is the root of the module, and has been built.
func (e Engine) Release(t *testing.T, tree string, plugins ...string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(testlevel.Tmp(), "br") // short: sockets lie below it
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	Must(t, copyPrograms(tree, filepath.Join(dir, "bin"), append(plugins, e.Name)))
	return dir
}

// Command makes a command that runs as the engine's user, in dir, with only a
// user's usual environment. Berth's runtime folder is dir/r.
func (e Engine) Command(ctx context.Context, t *testing.T, dir, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + e.User.HomeDir, "XDG_RUNTIME_DIR=/run/user/" + e.User.Uid,
		"BERTH_RUNTIME_DIR=" + filepath.Join(dir, "r"), "NO_COLOR=1",
	}
	if e.User.Uid != strconv.Itoa(os.Getuid()) {
		uid, err1 := strconv.ParseUint(e.User.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(e.User.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	return cmd
}

// Ask makes a command of the engine's own client.
func (e Engine) Ask(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	how := []string{"--host", e.Socket}
	if e.Name == "podman" {
		how = []string{"--url", e.Socket}
	}
	return e.Command(ctx, t, "/", e.Name, append(how, args...)...)
}

// Own gives dir and its content to the engine's user.
func (e Engine) Own(t *testing.T, dir string) {
	t.Helper()
	uid, err1 := strconv.Atoi(e.User.Uid)
	gid, err2 := strconv.Atoi(e.User.Gid)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || uid == os.Getuid() {
			return err
		}
		return os.Chown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
}
