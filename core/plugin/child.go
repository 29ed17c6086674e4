package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// child is a plugin process in the form of a go-plugin runner. We have our own
// because go-plugin's runner gives the process our stdin, stops reading stdout
// after a long line, panics on a malicious line of stderr, kills only the
// leader of the process group, and waits for every process that holds stderr
// open.
type child struct {
	path     string
	cmd      *exec.Cmd
	sockets  string // folder of this process, removed after its end
	startErr error

	out, err *lines // its output, as log records
	output   func() *output
	attempts attempts

	ours   []*os.File // our ends of stdin, stdout and stderr: the process sees EOF when we are gone
	relay  *io.PipeWriter
	relayR *io.PipeReader
	quiet  *io.PipeWriter // stderr as go-plugin sees it: empty, closed at the end
	quietR *io.PipeReader
	pumps  sync.WaitGroup

	done chan struct{} // closed when the process has ended and was reaped

	mu      sync.Mutex
	running bool   // started and not reaped yet: its PID is still valid
	dead    bool   // kill was called; no start happens after it
	first   string // line of stdout, which should be the handshake
}

// maxHandshake bounds the first line of stdout, in bytes.
const maxHandshake = 4 << 10

var _ runner.Runner = (*child)(nil)

func newChild(path string, env []string, log zerolog.Logger, out func() *output) *child {
	c := &child{path: path, output: out, done: make(chan struct{})}
	c.out, c.err = newLines(c, log, "stdout"), newLines(c, log, "stderr")
	c.cmd = &exec.Cmd{Path: path, Args: []string{path}, Env: env, Dir: "/"}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.relayR, c.relay = io.Pipe()
	c.quietR, c.quiet = io.Pipe()
	return c
}

// Start implements runner.Runner.
func (c *child) Start(context.Context) error {
	c.startErr = c.start()
	if c.startErr != nil {
		close(c.done)
	}
	return c.startErr
}

func (c *child) start() error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	for i := range 3 { // stdin, stdout and stderr
		its, our, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("pipe: %w", err)
		}
		if i > 0 {
			its, our = our, its
		}
		theirs, c.ours = append(theirs, its), append(c.ours, our)
	}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = theirs[0], theirs[1], theirs[2]

	// The kernel kills the process when the thread that started it ends. So
	// that thread stays with the process until its end.
	begun := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.fork(c.ours[1], c.ours[2])
		begun <- err
		if err == nil {
			c.wait()
		}
	}()
	return <-begun
}

func (c *child) fork(stdout, stderr io.Reader) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return errors.New("the start was cancelled")
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.running = true
	c.pumps.Go(func() { c.pumpStdout(stdout) })
	c.pumps.Go(func() { c.err.readFrom(bufio.NewReaderSize(stderr, maxLine)) })
	return nil
}

// pumpStdout passes the first line on as the handshake and logs the rest.
func (c *child) pumpStdout(r io.Reader) {
	buf := bufio.NewReaderSize(r, maxLine)
	line, _ := buf.ReadSlice('\n')
	if len(line) > maxHandshake {
		line = line[:maxHandshake]
	}
	text := strings.TrimRight(string(line), "\r\n")
	c.mu.Lock()
	c.first = text
	c.mu.Unlock()
	if len(line) > 0 {
		_, _ = io.WriteString(c.relay, text+"\n") // fails only when nothing waits for it
	} else {
		_ = c.relay.Close() // the process closed stdout: no handshake will come
	}
	c.out.readFrom(buf)
}

// wait reaps the process, after killing the rest of its group: until the leader
// is reaped, no other group can get its number.
func (c *child) wait() {
	pid := c.cmd.Process.Pid
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.mu.Lock()
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = c.cmd.Wait() // ProcessState records how it ended
	c.running = false
	c.mu.Unlock()
	// A process that left the group may still hold stdout or stderr.
	for _, f := range c.ours[1:] {
		_ = f.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	}
	c.pumps.Wait()
	c.closeAll()
	close(c.done)
}

func (c *child) closeAll() {
	_ = c.relay.Close()
	_ = c.quiet.Close()
	for _, f := range c.ours {
		_ = f.Close()
	}
}

// kill kills the process group, now or as soon as it would start.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	if c.running {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// finish waits for the end of a process that is being stopped, and frees what a
// failed start left. It may be called again.
func (c *child) finish() {
	c.mu.Lock()
	started := c.cmd.Process != nil
	c.mu.Unlock()
	if started {
		<-c.done
	}
	c.closeAll()
	if c.sockets != "" {
		_ = os.RemoveAll(c.sockets)
	}
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd.Process == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// status says how the process ended: "exit status 1", "signal: killed".
func (c *child) status() string {
	if !c.ended() || c.cmd.ProcessState == nil {
		return "still running"
	}
	return c.cmd.ProcessState.String()
}

func (c *child) handshake() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// Wait implements runner.Runner.
func (c *child) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill implements runner.Runner.
func (c *child) Kill(context.Context) error {
	c.kill()
	return nil
}

// Stdout implements runner.Runner.
func (c *child) Stdout() io.ReadCloser { return c.relayR }

// Stderr implements runner.Runner.
func (c *child) Stderr() io.ReadCloser { return c.quietR }

// Name implements runner.Runner.
func (c *child) Name() string { return nameOf(c.path) }

// ID implements runner.Runner.
func (c *child) ID() string { return strconv.Itoa(c.pid()) }

// Diagnose implements runner.Runner.
func (c *child) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }

// HostToPlugin implements runner.Runner.
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }
