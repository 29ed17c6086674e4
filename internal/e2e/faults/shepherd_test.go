package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleEnv makes this test binary run as another program than a test.
const roleEnv = "BERTH_TEST_ROLE"

// patience is how long processes that berth started may outlive it.
const patience = 15 * time.Second // the promise: none does; to be killed takes a moment

// fileEnv makes a shepherd limit the size of every file that its command and
// the descendants of the command write, in bytes.
const fileEnv = "BERTH_E2E_FILE"

// ending is what a shepherd reports.
type ending struct {
	Code   int            `json:"code"`   // -1: ended by Signal
	Signal syscall.Signal `json:"signal"` // 0: none
	// Left are the processes that outlived the command by more than patience:
	// process id and command line. The shepherd ended them.
	Left []string `json:"left"`
	// Peak is the largest amount of memory of the command, or of a process that
	// the command waited for, in bytes.
	Peak int64 `json:"peak"`
}

// shepherd starts the command in its arguments. All orphaned descendants of the
// command become its children. It reports its process id, and how the command
// and its descendants ended, on file descriptor 3.
func shepherd() int {
	tell := os.NewFile(3, "tell")
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "shepherd:", err)
		return 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(err)
	}
	if err := smallDisk(os.Getenv(diskEnv)); err != nil {
		return fail(err)
	}
	if err := limitFiles(os.Getenv(fileEnv)); err != nil {
		return fail(err)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...) //nolint:noctx // ends when it ends; a test that is over kills it by Pdeathsig
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "BERTH_E2E_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	unix.CloseOnExec(3)
	if _, err := fmt.Fprintln(tell, cmd.Process.Pid); err != nil {
		return fail(err)
	}
	e, err := await(cmd.Process.Pid)
	if err == nil {
		err = json.NewEncoder(tell).Encode(e)
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

// await reaps children until pid and all others have ended.
func await(pid int) (e ending, err error) {
	var ended time.Time
	for {
		var ws syscall.WaitStatus
		var used syscall.Rusage
		flags := unix.WALL
		if !ended.IsZero() {
			flags |= unix.WNOHANG
		}
		got, waitErr := syscall.Wait4(-1, &ws, flags, &used)
		switch {
		case errors.Is(waitErr, syscall.EINTR):
		case errors.Is(waitErr, syscall.ECHILD):
			return e, nil
		case waitErr != nil:
			return e, waitErr
		case got == pid:
			ended, e.Peak = time.Now(), used.Maxrss<<10
			if e.Code = ws.ExitStatus(); ws.Signaled() {
				e.Signal = ws.Signal()
			}
		case got == 0 && e.Left == nil && time.Since(ended) > patience: // the promise: what berth started ends with it
			for _, p := range descendants(os.Getpid()) {
				e.Left = append(e.Left, fmt.Sprintf("%d %s", p, cmdline(p)))
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
		case got == 0:
			time.Sleep(5 * time.Millisecond) // it is a program of its own: no test waits
		}
	}
}

// descendants returns the processes below pid.
func descendants(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, d := range entries {
		if p, convErr := strconv.Atoi(d.Name()); convErr == nil {
			children[parent(p)] = append(children[parent(p)], p)
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; next = next[1:] {
		all = append(all, next[0])
		next = append(next, children[next[0]]...)
	}
	return all
}

func parent(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(b), ") ") // a name may hold blanks, but none of ours holds this
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return -1
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return n
}

func cmdline(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}
