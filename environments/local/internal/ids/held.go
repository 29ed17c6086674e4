package ids

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// heldMark is the variable that tells the process that Enter starts the uid and
// gid of the user on the host.
const heldMark = "BERTH_LOCAL_HELD"

// heldChannel is the descriptor on which that process learns that its ids are
// mapped.
const heldChannel = 3

// heldCaps are the capabilities that this process needs in its own user
// namespace: to write the maps of sandboxes, and to kill processes with their
// ids. They are ambient, because it is executed before its ids are mapped.
var heldCaps = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL}

// Enter finds out what this process can do. If an ordinary user has subordinate
// ids, it executes this program again inside a user namespace that has them,
// and returns only in that process. All sandboxes share this namespace, because
// entering the ids for each sandbox would cost two setuid programs each time.
// The process outside passes on standard input, output, error and the exit
// code, ends with the one inside, and ends the one inside when it is killed.
//
// Call it first in main, before anything is written or served. An error means
// that no sandbox can be made safely.
func Enter() (*Process, error) {
	if mark := os.Getenv(heldMark); mark != "" {
		return resume(mark)
	}
	initial, err := where()
	if err != nil {
		return nil, err
	}
	p := &Process{UID: os.Geteuid(), GID: os.Getegid(), Nested: !initial}
	if initial && p.UID == 0 {
		p.Mode, p.slots = RealRoot, sync.OnceValues(openSlots)
		return p, nil
	}
	p.Mode = OneID
	if err := enter(p); err != nil {
		p.Why = err.Error() // one id is left, and Check reports this when it matters
	}
	return p, nil
}

// enter starts this program again with the user's subordinate ids. It returns
// only if that fails.
func enter(p *Process) error {
	tools, ranges, err := find(p.UID)
	if err != nil {
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it is this program and ends when we are ended
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%d", heldMark, p.UID, p.GID))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, AmbientCaps: heldCaps,
		Pdeathsig: syscall.SIGKILL, // belongs to this thread, to which main has locked itself
	}
	err = cmd.Start()
	_ = theirs.Close()
	defer ours.Close()
	if err != nil {
		return fmt.Errorf("enter subordinate ids: %w", err)
	}
	err = mapBoth(cmd.Process.Pid, tools, ranges, [2]int{p.UID, p.GID})
	if err == nil {
		_, err = ours.Write([]byte{'\n'})
	}
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	signal.Ignore(syscall.SIGINT) // like go-plugin's own processes: the host decides when we end
	if err := ignoreExit(cmd.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		os.Exit(1) //nolint:forbidigo // the process that this one stands for has ended
	}
	code := cmd.ProcessState.ExitCode()
	if code < 0 { // killed by a signal
		code = 137
	}
	os.Exit(code) //nolint:forbidigo // as above
	return nil
}

// find returns the helpers and the ids of a user, or an error that says what is
// missing.
func find(uid int) (tools [2]string, ranges [2]span, err error) {
	for i, name := range []string{"newuidmap", "newgidmap"} {
		if tools[i], err = exec.LookPath(name); err != nil {
			if tools[i], err = exec.LookPath("/usr/bin/" + name); err != nil {
				return tools, ranges, fmt.Errorf("there is no %s (package uidmap or shadow-utils)", name)
			}
		}
		if ranges[i], err = mine([]string{subuid, subgid}[i], uid); err != nil {
			return tools, ranges, err
		}
	}
	return tools, ranges, nil
}

// HasRanges reports whether Enter could use subordinate ids of a user.
func HasRanges(uid int) bool {
	_, _, err := find(uid)
	return err == nil
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// mapTime is how long a helper may take. It takes milliseconds if the user is
// in /etc/passwd.
const mapTime = 10 * time.Second

// mapBoth maps 1… to the subordinate ids and self to the user. The helpers are
// setuid programs that check the files themselves. Both run at the same time;
// each takes some milliseconds.
func mapBoth(pid int, tools [2]string, ranges [2]span, own [2]int) error {
	var errs [2]error
	var work sync.WaitGroup
	for i, tool := range tools {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), mapTime) // they may ask a directory service
			defer cancel()
			out, err := exec.CommandContext(ctx, tool, strconv.Itoa(pid),
				"1", strconv.Itoa(ranges[i].first), strconv.Itoa(Count-1),
				strconv.Itoa(self), strconv.Itoa(own[i]), "1").CombinedOutput()
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(string(out)))
			}
		})
	}
	work.Wait()
	return errors.Join(errs[:]...)
}

// resume is the part of Enter in the process inside.
func resume(mark string) (*Process, error) {
	p := &Process{Mode: Held}
	if _, err := fmt.Sscanf(mark, "%d:%d", &p.UID, &p.GID); err != nil {
		return nil, fmt.Errorf("%s=%q: it is set by this program alone: unset it", heldMark, mark)
	}
	if err := os.Unsetenv(heldMark); err != nil {
		return nil, err
	}
	unix.CloseOnExec(heldChannel)
	channel := os.NewFile(heldChannel, "channel")
	if _, err := io.ReadFull(channel, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("enter subordinate ids: wait for the map: %w", err)
	}
	if os.Geteuid() != self {
		return nil, fmt.Errorf("enter subordinate ids: we are user %d, not %d", os.Geteuid(), self)
	}
	return p, channel.Close()
}

// Kill kills a process of a sandbox that another process of this plugin may have
// made. start is its start time in ticks; unix.ESRCH means that it is gone, and
// unix.EPERM, in mode Held, that its maker lives: only the user outside may kill it
// then. It kills by descriptor, so that the number cannot go to another process
// between the check of the start time and the signal.
func Kill(pid int, start uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if s, err := Started(pid); err != nil || s != start {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// Started returns the start time of a process in clock ticks since boot.
// Together with the process number it identifies the process permanently. A
// zombie counts as gone: unix.ESRCH.
func Started(pid int) (uint64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, unix.ESRCH
	}
	if err != nil {
		return 0, err
	}
	// The name in the second field may contain anything, but the last ")" ends
	// it.
	f := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	if f[0] == "Z" || f[0] == "X" {
		return 0, unix.ESRCH
	}
	return strconv.ParseUint(f[19], 10, 64)
}
