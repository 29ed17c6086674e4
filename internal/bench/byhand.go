package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/agent/bundle"
)

// byHand is a CLI started on the host, as a person would do it. Only this
// process sees the bundle at the path where its programs expect it; it shares
// nothing else with a sandbox.
type byHand struct {
	Bundle   string // folder on the host
	Argv     []string
	Env      []string
	Dir      string
	Stdin    string
	Deadline time.Duration
}

// handed is the result.
type handed struct {
	Began  time.Time     // right before fork and exec
	CPU    time.Duration // of the CLI and of all processes that it waited for
	Output string        // the end of stdout and stderr
	Error  string
}

// handMode is the argument by which this program starts a CLI by hand, in a
// mount namespace of its own.
const handMode = "-by-hand"

// run starts the CLI and returns when it has ended.
func (h byHand) run(ctx context.Context) (out handed, err error) {
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	h.Deadline = time.Minute * 5
	raw, err := json.Marshal(h)
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, self, handMode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{21} // CAP_SYS_ADMIN, in its own namespace: it mounts
	}
	var said, wrong bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(raw), &said, &wrong
	if err = cmd.Run(); err != nil {
		return out, fmt.Errorf("%s by hand: %w: %s", filepath.Base(h.Argv[0]), err, &wrong)
	}
	if err = json.Unmarshal(said.Bytes(), &out); err == nil && out.Error != "" {
		err = fmt.Errorf("%s by hand: %s: %s", filepath.Base(h.Argv[0]), out.Error, out.Output)
	}
	return out, err
}

// startByHand runs in this program in its own mount namespace. It mounts the
// bundle where its programs expect it, and starts the CLI.
func startByHand(ctx context.Context) error {
	var h byHand
	if err := json.NewDecoder(os.Stdin).Decode(&h); err != nil {
		return err
	}
	if err := mountBundle(h.Bundle); err != nil {
		return fmt.Errorf("mount %s: %w", h.Bundle, err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Argv[0], h.Argv[1:]...) //nolint:gosec // what the plugin would start
	var out strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.Dir, h.Env, strings.NewReader(h.Stdin), &out, &out
	cmd.SysProcAttr = ownSession()
	answer := handed{Began: time.Now()}
	err := cmd.Run()
	if err != nil {
		answer.Error = err.Error()
	}
	if s := cmd.ProcessState; s != nil {
		answer.CPU = s.UserTime() + s.SystemTime()
	}
	answer.Output = tail(out.String())
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// ownSession starts a program in its own session, like commands in a sandbox:
// Linux shares processors among sessions first (sched_autogroup_enabled), and
// on a busy machine a new session waits longer at first than an existing one.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// mountBundle mounts a folder at bundle.Place, over an empty file system, so
// that only the first folder of that path has to exist.
func mountBundle(folder string) error {
	from, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer from.Close()
	top := "/" + strings.SplitN(bundle.Place, "/", 3)[1]
	return errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("tmpfs", top, "tmpfs", syscall.MS_NOSUID, "size=1m,mode=755"),
		os.MkdirAll(bundle.Place, 0o755),
		syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", from.Fd()), bundle.Place, "", syscall.MS_BIND, ""),
		syscall.Mount("", bundle.Place, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""),
	)
}
