package control

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// childEnv has the path of a socket that a child of a test connects to.
const childEnv = "BERTH_TEST_ROLE"

// ServeAsChild connects to a socket, prints what is said there and ends the process,
// if this process is the child of a test.
func ServeAsChild() {
	path := os.Getenv(childEnv)
	if path == "" {
		return
	}
	var d net.Dialer
	c, err := d.Dial("unix", path)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		var b []byte
		b, err = io.ReadAll(c)
		fmt.Printf("%s", b) //nolint:forbidigo // for the test
	}
	if err != nil {
		fmt.Println(err) //nolint:forbidigo // for the test
	}
	os.Exit(0) //nolint:forbidigo // of the child
}

// Whoever can open the socket is still refused if it is another user. Only root can
// be two users.
func TestOtherUsersAreRefused(t *testing.T) {
	t.Parallel()
	testlevel.Root(t, "be another user")
	dir, err := os.MkdirTemp(testlevel.Tmp(), "bcp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "child") // the folder of the test's program may be closed to others
	b, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, b, 0o755) //nolint:gosec // another user runs it
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // as above
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, guard := range []bool{false, true} {
		for _, uid := range []uint32{0, 65534} {
			out := servedTo(t, filepath.Join(dir, fmt.Sprint(guard, uid)), program, guard, uid)
			if got, want := strings.Contains(out, "served"), !guard || uid == 0; got != want {
				t.Errorf("guard %v, user %d: served %v, want %v: %q", guard, uid, got, want, out)
			}
		}
	}
}

// servedTo returns what a user is told on a socket that everybody can open.
func servedTo(t *testing.T, path, program string, guard bool, uid uint32) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	if err == nil {
		err = os.Chmod(path, 0o666) //nolint:gosec // what the guard is for
	}
	if err != nil {
		t.Fatal(err)
	}
	served := l
	if guard {
		served = guarded{l, 0}
	}
	go func() {
		for {
			c, ended := served.Accept()
			if ended != nil {
				return
			}
			_, _ = io.WriteString(c, "served")
			_ = c.Close()
		}
	}()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = []string{childEnv + "=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	_ = l.Close()
	if err != nil {
		t.Errorf("user %d: %v", uid, err)
	}
	return string(out)
}
