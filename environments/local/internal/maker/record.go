package maker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/ids"
)

// record is the file about a sandbox, so that any process of this plugin can
// find the sandbox. It is small and exists as long as the sandbox.
type record struct {
	ID      string `json:"id"`
	Owner   string `json:"owner"`
	Trial   string `json:"trial"`
	Attempt int    `json:"attempt"`
	PID     int    `json:"pid"`   // of sandboxd, in the pid namespace PIDNS
	Start   uint64 `json:"start"` // its start time, in ticks since boot Boot
	PIDNS   string `json:"pid_ns"`
	Boot    string `json:"boot"`
	Group   string `json:"group,omitempty"` // path of its control group
}

var idForm = regexp.MustCompile(`^local-[a-z0-9]{16}$`)

func validID(id string) bool { return idForm.MatchString(id) }

func recordPath(s *base.State, id string) string { return filepath.Join(s.Boxes, id+".json") }

// boot identifies the current boot of the machine. Process numbers of another
// boot have no meaning.
var boot = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
})

// write completes r and writes it.
func (m *Maker) write(r *record) (err error) {
	if r.Start, err = ids.Started(r.PID); err != nil {
		return fmt.Errorf("look at process %d: %w", r.PID, err)
	}
	r.PIDNS, r.Boot = m.outside["pid"], boot()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	state, err := m.state()
	if err != nil {
		return err
	}
	if err := base.WriteWhole(recordPath(state, r.ID), data); err != nil { // after a crash of the machine the sandbox is gone too
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

func (m *Maker) forget(id string) error {
	state, err := m.state()
	if err != nil {
		return err
	}
	if err := os.Remove(recordPath(state, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// read reads a record. It fails with fs.ErrNotExist if there is none.
func (m *Maker) read(id string) (r record, err error) {
	state, err := m.state()
	if err != nil {
		return r, err
	}
	data, err := os.ReadFile(recordPath(state, id))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("record %s: %w", id, err)
	}
	return r, nil
}

// List returns the ids of all sandboxes of this user that have that owner, or
// of all if owner is empty. They are the running ones and those whose record a
// killed process left, which Destroy removes. Sandboxes of another pid
// namespace are left out, because they cannot be checked from here.
func (m *Maker) List(owner string) ([]string, error) {
	state, err := m.state()
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	entries, err := os.ReadDir(state.Boxes)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	all := []string{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !validID(id) {
			continue
		}
		r, err := m.read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		if (owner == "" || r.Owner == owner) && (r.PIDNS == m.outside["pid"] || r.Boot != boot()) {
			all = append(all, id)
		}
	}
	return all, nil
}

// keepDead is how long the record of a sandbox that ended with its process is
// kept for a Destroy.
const keepDead = time.Hour

// sweep removes old records that were never destroyed. They contain only a
// name.
func (m *Maker) sweep(state *base.State) {
	entries, err := os.ReadDir(state.Boxes)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < keepDead {
			continue
		}
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok { // incomplete: its process was killed while writing
			_ = os.Remove(filepath.Join(state.Boxes, e.Name()))
			continue
		}
		r, err := m.read(id)
		if err != nil || r.Boot == boot() && r.PIDNS != m.outside["pid"] {
			continue
		}
		if s, err := ids.Started(r.PID); r.Boot != boot() || errors.Is(err, unix.ESRCH) || err == nil && s != r.Start {
			_ = m.discard(r)
		}
	}
}

// discard frees what a record of a dead sandbox refers to.
func (m *Maker) discard(r record) error {
	var err error
	if r.Group != "" && r.Boot == boot() {
		err = cgroup.Remove(r.Group)
	}
	return errors.Join(err, m.forget(r.ID))
}

// destroyForeign destroys a sandbox that another process made.
func (m *Maker) destroyForeign(ctx context.Context, id string) error {
	r, err := m.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox: %w", err)
	}
	if r.Boot == boot() {
		if r.PIDNS != m.outside["pid"] {
			return fmt.Errorf("destroy sandbox %s: it belongs to another container of this machine, which its processes cannot be reached from", id)
		}
		err := ids.Kill(r.PID, r.Start)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("destroy sandbox %s: another process of berth made it and still runs: end that process, and its sandboxes end", id)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("destroy sandbox %s: kill process %d: %w", id, r.PID, err)
		}
		for {
			if s, err := ids.Started(r.PID); err != nil || s != r.Start {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("destroy sandbox %s: process %d was killed and does not end: %w", id, r.PID, ctx.Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return m.discard(r)
}
