package maker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/inside"
)

// setUpTime is how long local-init may take. It needs some milliseconds, or
// seconds on a machine that swaps.
const setUpTime = 30 * time.Second

// spawner is a thread that starts processes. The death signal of a process is
// sent when the thread that started it ends, and a Go thread may end before its
// process.
type spawner struct{ work chan func() }

func newSpawner() *spawner {
	s := &spawner{make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread belongs to the spawner
		for do := range s.work {
			do()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	s.work <- func() { done <- cmd.Start() }
	return <-done
}

func (s *spawner) close() { close(s.work) }

// started is a process in new namespaces that waits for its plan.
type started struct {
	cmd     *exec.Cmd
	ours    *net.UnixConn
	release func()        // of its ids
	group   *cgroup.Group // or nil; belongs to the caller
}

// start clones into new namespaces and, if there is one, a control group.
func (m *Maker) start(group *cgroup.Group) (*started, error) {
	maps, err := m.process.Maps()
	if err != nil {
		return nil, explain(inside.Failure{Text: err.Error()}, err)
	}
	ours, theirs, err := channel()
	if err != nil {
		maps.Release()
		return nil, err
	}
	// Descriptor 4 is inside.Channel+1. The child resolves the path, in the
	// host's /proc.
	cmd := exec.Command("/proc/self/fd/4") //nolint:noctx // lives longer than any context; Destroy ends it
	cmd.Args = []string{"local-init"}
	// The host's environment is not passed on. One processor is enough for a
	// sequence of system calls.
	cmd.Env = []string{"GOMAXPROCS=1", "GOGC=off"}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr // sandboxd closes it once it is connected
	cmd.ExtraFiles = []*os.File{theirs, m.init}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWNET,
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true, // no access to the terminal of the user who started us (TIOCSTI)
		UidMappings: maps.UID, GidMappings: maps.GID,
		GidMappingsEnableSetgroups: maps.Setgroups,
		Credential:                 maps.Become,
	}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group.FD()
	}
	err = m.spawner.start(cmd)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		maps.Release()
		return nil, explainClone(err)
	}
	return &started{cmd: cmd, ours: ours, release: maps.Release, group: group}, nil
}

// userNamespace opens the sandbox's user namespace.
func (s *started) userNamespace() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", s.cmd.Process.Pid))
}

// end kills the process and frees its resources.
func (s *started) end() {
	_ = s.ours.Close()
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()         // "signal: killed" is expected
	s.release()
}

// send sends the plan and waits for the end of the set-up.
func (s *started) send(ctx context.Context, plan *inside.Plan, fds []int) error {
	defer s.ours.Close()
	_ = s.ours.SetDeadline(time.Now().Add(setUpTime))
	stop := context.AfterFunc(ctx, func() { _ = s.ours.SetDeadline(time.Now()) })
	defer stop()
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	if len(data) > inside.MaxPlan {
		return fmt.Errorf("plan has %d bytes, %d are the most: give fewer mounts", len(data), inside.MaxPlan)
	}
	if _, _, err = s.ours.WriteMsgUnix(data, unix.UnixRights(fds...), nil); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("send plan: %w", err))
	}
	text, err := s.answer()
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("wait for set-up: %w", err)
	case string(text) == inside.Ready:
		return nil
	}
	return failure(text)
}

// answer reads what local-init sends until it closes the channel.
func (s *started) answer() (text []byte, err error) {
	data := make([]byte, 64<<10)
	for {
		n, err := s.ours.Read(data)
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return text, nil
		}
		if err != nil {
			return text, err
		}
		text = append(text, data[:n]...)
	}
}

// failure reads the answer of local-init.
func failure(text []byte) error {
	var f inside.Failure
	if json.Unmarshal(bytes.TrimPrefix(text, []byte(inside.Ready)), &f) != nil {
		return errors.New("local-init ended before the sandbox was built: it was killed, or this machine is out of memory")
	}
	return explain(f, nil)
}

// channel makes a pair of sockets. It uses sequenced packets, so that the plan
// is one message of any size.
func channel() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "channel")
	defer f.Close()
	c, err := net.FileConn(f) // duplicates
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return c.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "channel"), nil //nolint:forcetypeassert // of a Unix socket
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
