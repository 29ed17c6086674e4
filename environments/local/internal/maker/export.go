package maker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/inside"
)

// ErrNoSandbox means that there is no sandbox of this process with that id.
var ErrNoSandbox = errors.New("no such sandbox of this process")

// ErrTooLarge means that the files of a sandbox are more than a snapshot holds.
var ErrTooLarge = errors.New("too large")

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

// Stop ends all processes of a sandbox. Its files stay until Destroy.
func (m *Maker) Stop(id string) error {
	b, err := m.box(id)
	if err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	b.end()
	return nil
}

// Export writes the files of a sandbox whose processes are stopped to an archive
// for Order.Snapshot. It reads them in a process with the ids of the sandbox, so
// that owners are those that the sandbox sees.
func (m *Maker) Export(ctx context.Context, id string, to *os.File) error {
	b, err := m.box(id)
	if err != nil {
		return fmt.Errorf("export sandbox: %w", err)
	}
	limit := b.size
	if limit == 0 {
		limit = Memory() / 2 // what a tmpfs without a size holds
	}
	cmd := exec.CommandContext(ctx, "/proc/self/fd/4")
	cmd.Args = []string{"local-init", inside.ExportWord, strings.Join(b.targets, ","), strconv.FormatInt(limit, 10)}
	cmd.Env, cmd.Dir = []string{"GOMAXPROCS=1"}, "/"
	said := &bytes.Buffer{}
	cmd.Stderr = said
	cmd.ExtraFiles = []*os.File{to, m.init, b.staging}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// It opens no connection: a network namespace would take longer to make and
		// to end than the export itself.
		Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL, Setsid: true,
		UidMappings: b.maps.UID, GidMappings: b.maps.GID, GidMappingsEnableSetgroups: b.maps.Setgroups, Credential: b.maps.Become,
	}
	if err = m.spawner.start(cmd); err != nil {
		return explainClone(err)
	}
	if err = cmd.Wait(); err != nil {
		if text, ok := strings.CutPrefix(said.String(), inside.ExportTooLarge); ok {
			return fmt.Errorf("export sandbox: %w: %s", ErrTooLarge, text)
		}
		if text, ok := strings.CutPrefix(said.String(), inside.ExportError); ok {
			err = errors.New(text)
		}
		return fmt.Errorf("export sandbox: %w", errors.Join(context.Cause(ctx), err))
	}
	_, err = to.Seek(0, io.SeekStart)
	return err
}

// Memory returns the memory of this machine in bytes.
func Memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 40
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // of other widths on other machines
}

// targets returns those of the layers, in the order of the plan.
func (h *host) targets() []string {
	all := append([]string{}, h.folders...)
	if h.etc != nil {
		all = append(all, "etc")
	}
	return all
}
