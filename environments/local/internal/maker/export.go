package maker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/inside"
)

// ErrNoSandbox means that there is no sandbox of this process with that id.
var ErrNoSandbox = errors.New("no such sandbox of this process")

// ErrTooLarge means that the files of a sandbox are more than a snapshot holds.
var ErrTooLarge = errors.New("too large")

// snapshotBytes is how many bytes of files a snapshot holds at most, as those of
// engines do. It counts files with holes in full, because Export writes the holes:
// an agent could fill the disk of the host with what takes no memory.
const snapshotBytes int64 = 4 << 30

// end kills the first process of the sandbox, and with it all others, and waits
// until it has ended.
func (b *box) end() {
	b.ended.Do(func() {
		_ = b.cmd.Process.Kill() // it may have ended by itself
		_ = b.cmd.Wait()         // "signal: killed" is expected
	})
}

func (m *Maker) box(id string) (*box, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.boxes[id]
	if b == nil || b.staging == nil {
		return nil, fmt.Errorf("%s: %w", id, ErrNoSandbox)
	}
	return b, nil
}

// Stop ends all processes of a sandbox. Its files stay until Destroy. Meanwhile it
// starts the process that Export needs, which takes as long as ending the sandbox.
func (m *Maker) Stop(id string) error {
	b, err := m.box(id)
	if err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	var x *exporter
	var both sync.WaitGroup
	both.Go(func() { x, _ = m.exporter(b) }) // Export tries again, and reports the error
	b.end()
	both.Wait()
	m.mu.Lock()
	if b.exporter == nil && !b.closed {
		b.exporter, x = x, nil
	}
	m.mu.Unlock()
	x.end()
	return nil
}

// exporter is a process with the ids of a sandbox that writes its files to the
// archive that it is sent.
type exporter struct {
	cmd  *exec.Cmd
	ours *net.UnixConn
	said *bytes.Buffer
}

// exporter starts one. It reads nothing yet.
func (m *Maker) exporter(b *box) (*exporter, error) {
	limit := b.size
	if limit == 0 {
		limit = Memory() / 2 // what a tmpfs without a size holds
	}
	limit = min(limit, snapshotBytes)
	ours, theirs, err := channel()
	if err != nil {
		return nil, err
	}
	x := &exporter{cmd: exec.Command("/proc/self/fd/4"), ours: ours, said: &bytes.Buffer{}} //nolint:noctx // end or write ends it
	x.cmd.Args = append([]string{"local-init", inside.ExportWord, strconv.FormatInt(limit, 10)}, b.targets...)
	x.cmd.Env, x.cmd.Dir = []string{"GOMAXPROCS=1"}, "/"
	x.cmd.Stderr = x.said
	x.cmd.ExtraFiles = []*os.File{theirs, m.init, b.staging}
	x.cmd.SysProcAttr = &syscall.SysProcAttr{
		// It opens no connection: a network namespace would take longer to make and
		// to end than the export itself.
		Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL, Setsid: true,
		UidMappings: b.maps.UID, GidMappings: b.maps.GID, GidMappingsEnableSetgroups: b.maps.Setgroups, Credential: b.maps.Become,
	}
	err = m.spawner.start(x.cmd)
	_ = theirs.Close()
	if err != nil {
		_ = ours.Close()
		return nil, explainClone(err)
	}
	return x, nil
}

// end ends an exporter that is not needed; nil is none.
func (x *exporter) end() {
	if x == nil {
		return
	}
	_ = x.ours.Close()
	_ = x.cmd.Process.Kill() // it may have ended by itself
	_ = x.cmd.Wait()         // "signal: killed" is expected
}

// write sends the archive to write to, and waits until it is written. It ends the
// exporter.
func (x *exporter) write(ctx context.Context, to *os.File) error {
	defer x.ours.Close()
	stop := context.AfterFunc(ctx, func() { _ = x.cmd.Process.Kill() })
	defer stop()
	_, _, unsent := x.ours.WriteMsgUnix([]byte{'\n'}, unix.UnixRights(int(to.Fd())), nil)
	if unsent != nil {
		_ = x.cmd.Process.Kill() // it may have ended by itself, which is the reason
	}
	err := x.cmd.Wait()
	if err == nil && unsent == nil {
		return nil
	}
	if text, ok := strings.CutPrefix(x.said.String(), inside.ExportTooLarge); ok {
		return fmt.Errorf("%w: %s", ErrTooLarge, text)
	}
	if text, ok := strings.CutPrefix(x.said.String(), inside.ExportError); ok {
		err = errors.New(text)
	}
	return errors.Join(context.Cause(ctx), unsent, err)
}

// Export writes the files of a sandbox whose processes are stopped to an archive
// for Order.Snapshot. It reads them in a process with the ids of the sandbox, so
// that owners are those that the sandbox sees.
func (m *Maker) Export(ctx context.Context, id string, to *os.File) error {
	b, err := m.box(id)
	if err != nil {
		return fmt.Errorf("export sandbox: %w", err)
	}
	m.mu.Lock()
	x := b.exporter
	b.exporter = nil
	m.mu.Unlock()
	if x == nil { // not stopped, or the second export
		if x, err = m.exporter(b); err != nil {
			return err
		}
	}
	if err = x.write(ctx, to); err != nil {
		return fmt.Errorf("export sandbox: %w", err)
	}
	_, err = to.Seek(0, io.SeekStart)
	return err
}

// close ends what waits for an export of the sandbox.
func (m *Maker) close(b *box) {
	m.mu.Lock()
	x := b.exporter
	b.exporter, b.closed = nil, true
	m.mu.Unlock()
	x.end()
}

// Memory returns the memory of this machine in bytes.
func Memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 40
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // of other widths on other machines
}
