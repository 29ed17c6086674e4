// Package maker makes and removes sandboxes from namespaces with the host's own
// programs.
//
// This package only prepares and starts; package inside does the work in the
// namespaces. It must not mount anything in the host's namespace, and it must
// not know tasks, images or configuration.
package maker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-eval/berth/environments/internal/remains"
	"github.com/berth-eval/berth/environments/local/internal/base"
	"github.com/berth-eval/berth/environments/local/internal/cgroup"
	"github.com/berth-eval/berth/environments/local/internal/ids"
	"github.com/berth-eval/berth/environments/local/internal/uplink"
	"github.com/berth-eval/berth/plugins/environment"
)

// Maker makes sandboxes for one user of the machine. It is safe for concurrent
// use.
type Maker struct {
	process *ids.Process
	places  base.Places
	init    *os.File // local-init
	outside map[string]string
	spawner *spawner
	groups  *cgroup.Parent // nil if we may use none

	mu    sync.Mutex
	boxes map[string]*box // made by this process

	opened onceOK[*base.State]
	host   onceOK[*host]
	probe  onceOK[struct{}]

	grouped onceOK[*cgroup.Parent]
}

// Order describes one sandbox to create.
type Order struct {
	Owner   string // the owner for List
	Trial   string
	Attempt int

	Control string // folder, mounted read-only at /berth
	Mounts  []environment.Mount
	Files   *os.File // tar archive that is unpacked at the root, or nil; the caller closes it
	Workdir string   // absolute, or empty
	Host    string   // name of the machine inside; empty: berth
	SizeMiB int64    // limit of everything that the sandbox writes, in MiB; 0: half of the memory
	ShmMiB  int64    // of /dev/shm, in MiB; 0: a folder like any other
	Nproc   int64    // limit of processes per user of the sandbox
	Limits  cgroup.Limits
	Public  bool // connected to the host's network; only if Uplink returns a program

	probe   bool   // build it and end without running a program
	breakAt string // name of a step that must fail: only tests set it
}

// Box is a running sandbox.
type Box struct {
	ID  string
	PID int // of sandboxd, in our pid namespace
}

// box is a sandbox of this process.
type box struct {
	*started

	link  *uplink.Link
	once  sync.Once
	usage environment.Remains
	err   error
}

// New prepares to make sandboxes with the ids of process. initPath is the path
// of local-init. It makes no file.
func New(process *ids.Process, places base.Places, initPath string) (*Maker, error) {
	m := &Maker{process: process, places: places, boxes: map[string]*box{}, outside: map[string]string{}, spawner: newSpawner()}
	for _, name := range []string{"user", "mnt", "pid"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return nil, fmt.Errorf("find out about namespaces: %w", err)
		}
		m.outside[name] = link
	}
	m.groups = cgroup.Find()
	var err error
	m.init, err = openInit(initPath)
	return m, err
}

// state returns the state folder. It makes the folder on first use.
func (m *Maker) state() (*base.State, error) {
	return m.opened.get(func() (*base.State, error) { return base.Open(m.places) })
}

// WorkFolder returns a folder of ours for files that no other process opens by
// name.
func (m *Maker) WorkFolder() (string, error) {
	s, err := m.state()
	if err != nil {
		return "", err
	}
	return s.Work, nil
}

// openInit opens local-init. It is executed through the descriptor, so that the
// ids of a sandbox need no access to its path.
func openInit(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("find local-init: %w: it belongs beside the plugin, in libexec: build it again (make build)", err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o005 != 0o005 {
		err = fmt.Errorf("%s must be executable by everybody (mode %v): chmod 755 %s", path, info.Mode().Perm(), path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Create starts a sandbox. If it returns no error, sandboxd runs as PID 1 of
// the sandbox. After an error nothing is left running.
func (m *Maker) Create(ctx context.Context, o Order) (_ Box, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("create sandbox: %w", err)
		}
	}()
	h, err := m.host.get(m.openHost)
	if err != nil {
		return Box{}, err
	}
	id := newID()
	group, err := m.group(id, o.Limits)
	if err != nil {
		return Box{}, err
	}
	started, err := m.start(group)
	if err != nil {
		return Box{}, errors.Join(err, group.Close()) // it is empty
	}
	link, err := m.connect(ctx, started, o)
	if err == nil {
		err = m.build(ctx, started, h, id, o)
	}
	if err != nil {
		_ = link.Close() // its network ends with the sandbox in any case
		started.end()
		return Box{}, errors.Join(err, group.Close(), m.forget(id))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boxes[id] = &box{started: started, link: link}
	return Box{ID: id, PID: started.cmd.Process.Pid}, nil
}

// Keeps reports whether a control group enforces limits of that kind.
func (m *Maker) Keeps(c cgroup.Controller) bool { return m.parent().Has(c) }

// parent returns the group in which control groups are made, or nil if that
// does not work.
func (m *Maker) parent() *cgroup.Parent {
	p, err := m.grouped.get(func() (*cgroup.Parent, error) {
		if m.groups == nil {
			return nil, nil
		}
		// Try it, because there are more possible reasons for failure than can
		// be checked.
		g, err := m.groups.Make("berth-"+newID(), cgroup.Limits{})
		if err != nil {
			return nil, nil //nolint:nilerr // then limits are not enforced, and granted reports that
		}
		s, err := m.start(g)
		if err == nil {
			s.end()
		}
		if errors.Join(err, g.Close()) != nil {
			return nil, nil //nolint:nilerr // as above
		}
		return m.groups, nil
	})
	if err != nil {
		return nil
	}
	return p
}

// Uplink returns the name of the program that connects sandboxes to the public
// network, or an empty string if there is none.
func (m *Maker) Uplink() string {
	if p := uplink.Find(); p != nil {
		return p.Name
	}
	return ""
}

// connect gives a sandbox the network of its order.
func (m *Maker) connect(ctx context.Context, s *started, o Order) (*uplink.Link, error) {
	if !o.Public {
		return nil, nil
	}
	p := uplink.Find()
	if p == nil {
		return nil, errors.New("there is no program for the public network: install " + uplink.Packages)
	}
	return p.Connect(ctx, s.cmd.Process.Pid, m.spawner.start)
}

// group makes the control group of a sandbox if it has a limit that a group
// enforces.
func (m *Maker) group(id string, l cgroup.Limits) (*cgroup.Group, error) {
	if l == (cgroup.Limits{}) || m.parent() == nil {
		return nil, nil
	}
	return m.parent().Make("berth-"+id, l)
}

// build writes the record and builds the sandbox.
func (m *Maker) build(ctx context.Context, s *started, h *host, id string, o Order) error {
	r := record{ID: id, Owner: o.Owner, Trial: o.Trial, Attempt: o.Attempt, PID: s.cmd.Process.Pid}
	if s.group != nil {
		r.Group = s.group.Path
	}
	if err := m.write(&r); err != nil {
		return err
	}
	plan, fds, err := m.plan(s, h, o)
	if err != nil {
		return err
	}
	defer closeAll(fds)
	return s.send(ctx, plan, fds)
}

// newID returns an id that no other sandbox has: 80 random bits.
func newID() string {
	return "local-" + strings.ToLower(rand.Text()[:16])
}

// Destroy kills everything in a sandbox and frees it. Killing PID 1 ends its
// pid namespace; mounts, tmpfs and network end with the last process. It also
// works for sandboxes of other processes of this user. An id that is unknown or
// gone is not an error.
func (m *Maker) Destroy(ctx context.Context, id string) (environment.Remains, error) {
	if !validID(id) {
		return environment.Remains{}, nil // there is no sandbox of ours
	}
	m.mu.Lock()
	b := m.boxes[id]
	m.mu.Unlock()
	if b == nil {
		return environment.Remains{}, m.destroyForeign(ctx, id)
	}
	b.once.Do(func() {
		b.end()
		_ = b.link.Close() // its network ends with the sandbox in any case
		if s := b.cmd.ProcessState; s != nil {
			b.usage.CPU = s.UserTime() + s.SystemTime()
		}
		if b.group != nil {
			b.usage = remains.Group(b.group.Path)
		}
		b.err = errors.Join(b.group.Close(), m.forget(id))
		m.mu.Lock()
		delete(m.boxes, id)
		m.mu.Unlock()
	})
	return b.usage, b.err
}

// Close destroys every sandbox of this process and releases its resources.
func (m *Maker) Close() error {
	m.mu.Lock()
	var all []string
	for id := range m.boxes {
		all = append(all, id)
	}
	m.mu.Unlock()
	var errs []error
	for _, id := range all {
		_, err := m.Destroy(context.Background(), id) // waits only for a killed process
		errs = append(errs, err)
	}
	if h, ok := m.host.made(); ok {
		errs = append(errs, h.close())
	}
	m.spawner.close()
	return errors.Join(append(errs, m.init.Close())...)
}

// InitPath returns the path of local-init, which is in the folder of the
// plugin's own executable.
func InitPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(exe), "libexec", "local-init"), nil
}

// onceOK computes a value once and keeps it. After a failure the next caller
// tries again. Concurrent callers wait for one another.
type onceOK[T any] struct {
	mu    sync.Mutex
	done  bool
	value T
}

func (o *onceOK[T]) get(compute func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return o.value, nil
	}
	v, err := compute()
	if err == nil {
		o.value, o.done = v, true
	}
	return v, err
}

func (o *onceOK[T]) made() (T, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.value, o.done
}

// Memory returns the memory of this machine in bytes.
func Memory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 40
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:unconvert // of other widths on other machines
}

// Probe checks whether sandboxes can be made on this machine. It builds one
// with only the host's /usr, in which no program runs, and writes to the
// folders that sandboxes need. It leaves only these folders behind. It takes
// some milliseconds the first time, and no time after a success.
func (m *Maker) Probe(ctx context.Context) error {
	_, err := m.probe.get(func() (_ struct{}, err error) {
		if err = m.tryOut(ctx); err != nil {
			err = fmt.Errorf("try a sandbox: %w", err)
		}
		return struct{}{}, err
	})
	return err
}

func (m *Maker) tryOut(ctx context.Context) error {
	h, err := m.lookAround()
	if err != nil {
		return err
	}
	s, err := m.start(nil)
	if err != nil {
		return err
	}
	defer s.end()
	shift := &shifter{}
	if m.process.Mode == ids.RealRoot {
		if shift.ns, err = s.userNamespace(); err != nil {
			return err
		}
		defer shift.ns.Close()
		// If ids cannot be shifted, a real sandbox uses a skeleton, but that
		// stays on disk, so Probe leaves the folder out.
		h.folders = slices.DeleteFunc(h.folders, func(f string) bool {
			ok, shiftErr := shift.can("/" + f)
			err = errors.Join(err, shiftErr)
			return !ok
		})
		if err != nil {
			return err
		}
	}
	plan, fds, err := m.plan(s, h, Order{probe: true})
	if err == nil {
		defer closeAll(fds)
		err = s.send(ctx, plan, fds)
	}
	if err != nil {
		return err
	}
	state, err := m.state()
	if err != nil {
		return err
	}
	return state.TryBase(shift.needs)
}
