package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/plugins/environment"
)

// endTime is how long the kernel may take to end the processes of a container
// that were killed, before the engine is asked about them instead.
const endTime = 5 * time.Second

// Stop ends the processes of a sandbox and keeps its files.
func (e *Environment) Stop(ctx context.Context, id string) error {
	r, name, err := e.of(id)
	if err != nil {
		return err
	}
	free, err := r.slot(ctx)
	if err != nil {
		return err
	}
	defer free()
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	used, alive := usage(b.pid) // its control groups end with it
	if err := e.end(ctx, r, name, b); err != nil {
		return fmt.Errorf("%s kill: %w", r.name, gone(err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ours := e.boxes[id]; ours && alive {
		b.used = &used
		e.boxes[id] = b
	}
	return nil
}

// end kills the processes of a container, and waits until they are gone. The
// kernel ends PID 1 after all other processes of the container. An engine takes
// longer to kill it, and answers later, when it has removed what belonged to the
// container: the kernel is asked where it can be.
func (e *Environment) end(ctx context.Context, r *remote, name string, b box) error {
	first, ok := openFirst(b.pid)
	if !ok {
		if err := r.Kill(ctx, name); err != nil {
			return err
		}
		return r.Wait(ctx, name)
	}
	defer func() { _ = unix.Close(first) }()
	killed := make(chan error, 1)
	// The number of a process that has ended may be that of another one.
	same := b.began != "" && startOf(b.pid) == b.began
	if !same || unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0) != nil {
		e.work.Go(func() {
			calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
			defer cancel()
			killed <- r.Kill(calm, name)
		})
	}
	over, err := ended(ctx, first, killed)
	if over || err != nil {
		return err
	}
	return r.Wait(ctx, name)
}

// startOf returns when a process was started, in clock ticks since boot as the
// kernel writes them; empty: it has ended.
func startOf(pid int) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	// The process chooses its name, which ends at the last parenthesis.
	if f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])); len(f) > 19 {
		return f[19]
	}
	return ""
}

// openFirst opens a process, if it is PID 1 of a pid namespace other than ours.
func openFirst(pid int) (fd int, ok bool) {
	if pid <= 0 {
		return 0, false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			if f := strings.Fields(value); name == "NSpid" && len(f) > 1 && f[len(f)-1] == "1" {
				return fd, true
			}
		}
	}
	_ = unix.Close(fd)
	return 0, false
}

// ended waits until a process has ended, for [endTime] at most, and reports
// whether it has. It stops when killing it fails.
func ended(ctx context.Context, fd int, killed <-chan error) (bool, error) {
	const slice = 50 // milliseconds between two looks at ctx and killed
	for end := time.Now().Add(endTime); time.Now().Before(end) && ctx.Err() == nil; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, slice)
		if n > 0 {
			return true, nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, nil
		}
		select {
		case err := <-killed:
			if err != nil {
				return false, err
			}
			killed = nil
		default:
		}
	}
	return false, nil
}

// written returns how many bytes of files a container has besides its image,
// from their folder where this process can read all of it: some engines look at
// every file of the image to tell.
func (r *remote) written(ctx context.Context, name, folder string) (int64, error) {
	if folder != "" {
		if n, err := sizeOf(ctx, folder); err == nil {
			return n, nil
		}
	}
	return r.Written(ctx, name)
}

// sizeOf returns how many bytes the files below a folder have. It follows no
// links. The files must not change meanwhile.
func sizeOf(ctx context.Context, folder string) (n int64, err error) {
	seen := map[uint64]bool{} // files with several names
	err = filepath.WalkDir(folder, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return errors.Join(err, ctx.Err())
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !info.Mode().IsRegular() || ok && seen[st.Ino] {
			return nil
		}
		if ok && st.Nlink > 1 {
			seen[st.Ino] = true
		}
		n += info.Size()
		return nil
	})
	return n, err
}

// box is what is known of a sandbox that this process made.
type box struct {
	pid   int    // of PID 1 in our pid namespace
	began string // when that was started, see startOf; empty: not known
	image string // ID of what it was made of
	files string // folder on this machine with the files that were written in it; empty: not known
	parts parts
	used  *environment.Remains // of the main container, if Stop ended it
}
