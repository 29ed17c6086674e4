package modetest

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/internal/testlevel"
)

// other is a process that is another user or in another place. It lives as long
// as the tests, because what a sandbox needs of the host is looked up once a
// process and takes a second.
type other struct {
	cmd  *exec.Cmd
	in   io.WriteCloser // one pattern for -test.run a line
	out  *bufio.Reader  // what the tests print, then a line with ended and the exit code
	home string
}

// ended begins the line that a process prints when the tests of one pattern have
// ended.
const ended = "\x00modetest: ended "

type otherKey struct {
	mode  ids.Mode
	place Place
}

var (
	othersMu sync.Mutex // held while one of them runs tests
	others   = map[otherKey]*other{}
)

// serve runs the tests of each pattern on standard input until that is closed.
func serve(m *testing.M) int {
	flag.Parse()
	patterns := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			patterns <- in.Text()
		}
		os.Exit(0) //nolint:forbidigo // the parent is gone, perhaps while a test runs
	}()
	for p := range patterns {
		if err := flag.Set("test.run", p); err != nil {
			return fail(err)
		}
		fmt.Fprintf(os.Stdout, "%s%d\n", ended, m.Run()) // more than once: https://go.dev/issue/23129
	}
	return 0
}

// become runs this subtest again in a process of another user.
func become(t *testing.T, mode ids.Mode, place Place) {
	t.Helper()
	if mode == ids.Held {
		testlevel.Program(t, "newuidmap", "uidmap")
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	if full := flag.Lookup("test.run").Value.String(); strings.Count(full, "/") > strings.Count(t.Name(), "/") {
		pattern = full
	}
	othersMu.Lock()
	defer othersMu.Unlock()
	key := otherKey{mode, place}
	o := others[key]
	if o == nil {
		var err error
		if o, err = startOther(mode, place); err != nil {
			t.Fatal(err)
		}
		others[key] = o
	}
	out, err := o.run(pattern)
	t.Logf("in its own process (%s %s):\n%s", names[mode], place, out)
	if err != nil {
		t.Errorf("in its own process: %v", err)
	}
	if strings.Contains(out, "no tests to run") {
		t.Error("nothing was run")
	}
	if errors.Is(err, errEnded) {
		delete(others, key)
		if err := o.stop(); err != nil {
			t.Errorf("in its own process: %v", err)
		}
	}
}

func startOther(mode ids.Mode, place Place) (*other, error) {
	cache := cacheOf(User)
	if err := os.Mkdir(cache, 0o700); err == nil {
		err = os.Chown(cache, User, User)
		if err != nil {
			return nil, err
		}
	}
	home, err := os.MkdirTemp("", "berth-home-")
	if err == nil {
		err = os.Chown(home, User, User)
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", "-test.v") //nolint:noctx // ends when its standard input does
	cmd.Dir = "/"
	cmd.Env = []string{
		"BERTH_TEST=" + os.Getenv("BERTH_TEST"), "PATH=" + os.Getenv("PATH"), "HOME=" + home, markMode + "=" + names[mode], markTools + "=" + Tools,
		markStage + "=" + names[mode], markPlace + "=" + string(place),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	o := &other{cmd: cmd, home: home}
	if o.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	o.out = bufio.NewReader(out)
	return o, cmd.Start()
}

// errEnded means that the process ended before its tests did.
var errEnded = errors.New("it ended early")

// run runs the tests of a pattern; an error says that they failed.
func (o *other) run(pattern string) (out string, err error) {
	var said strings.Builder
	_, err = io.WriteString(o.in, pattern+"\n")
	for err == nil {
		var line string
		line, err = o.out.ReadString('\n')
		before, code, found := strings.Cut(line, ended)
		said.WriteString(before)
		if !found {
			continue
		}
		if code = strings.TrimSpace(code); code != "0" {
			return said.String(), fmt.Errorf("exit code %s", code)
		}
		return said.String(), nil
	}
	return said.String(), fmt.Errorf("%w: %w", errEnded, err)
}

func (o *other) stop() error {
	defer time.AfterFunc(10*time.Second, func() { _ = o.cmd.Process.Kill() }).Stop()
	err := o.in.Close()
	return errors.Join(err, o.cmd.Wait(), os.RemoveAll(o.home))
}

func stopOthers() {
	for _, o := range others {
		if err := o.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "modetest:", err)
		}
	}
}

// IsOther says whether a child of this process is one that runs tests as another
// user: it stays until all tests have ended.
func IsOther(pid string) bool {
	othersMu.Lock()
	defer othersMu.Unlock()
	for _, o := range others {
		if fmt.Sprint(o.cmd.Process.Pid) == pid {
			return true
		}
	}
	return false
}
