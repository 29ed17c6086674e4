package sandboxd

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-eval/berth/plugins/fault"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox/become"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/pid1"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxd/internal/proc"
)

// control implements the service that the core calls.
type control struct {
	pb.UnimplementedSandboxControlServer
	d *daemon
}

// Hello begins the lease.
func (c *control) Hello(_ context.Context, q *pb.HelloRequest) (*pb.HelloReply, error) {
	if err := c.renew(q.GetLeaseMs()); err != nil {
		return nil, err
	}
	return &pb.HelloReply{BoundingCapabilities: become.Bounding(), Findings: c.d.findings}, nil
}

// Renew renews the lease. It also checks what root of the sandbox can still
// change about PID 1: it restores what can be restored, and returns an error
// for the rest.
func (c *control) Renew(_ context.Context, q *pb.RenewRequest) (*pb.RenewReply, error) {
	if err := c.renew(q.GetLeaseMs()); err != nil {
		return nil, err
	}
	c.d.reap.Score()
	c.d.reap.Collect()
	return &pb.RenewReply{}, c.d.untouched()
}

// untouched returns an error if a process has changed the resources that PID 1
// was given.
func (d *daemon) untouched() error {
	defer pid1.BlockControl()()
	return d.own.Changed()
}

func (c *control) renew(ms int64) error {
	const longest = int64(100 * 24 * time.Hour / time.Millisecond)
	if ms < 1 || ms > longest {
		return fmt.Errorf("%w: lease of %d ms, want 1 to %d", fault.ErrInvalid, ms, longest)
	}
	c.d.lease.Reset(time.Duration(ms) * time.Millisecond)
	return nil
}

// Listen opens a port for as long as the call lasts.
func (c *control) Listen(q *pb.ListenRequest, st grpc.ServerStreamingServer[pb.ListenReply]) error {
	return c.d.ports.Listen(q, st)
}

// Dial connects to a port.
func (c *control) Dial(ctx context.Context, q *pb.DialRequest) (*pb.DialReply, error) {
	return c.d.ports.Dial(ctx, q)
}

// table reads the process table, using a slot for calls of the core.
func table() (proc.Table, error) {
	defer pid1.BlockControl()()
	t, err := proc.List()
	if err != nil {
		return nil, fmt.Errorf("read the process table: %w", fault.Errno(err))
	}
	return t, nil
}

// Processes lists the running processes.
func (c *control) Processes(context.Context, *pb.ProcessesRequest) (*pb.ProcessesReply, error) {
	t, err := table()
	if err != nil {
		return nil, err
	}
	list, rest := c.d.describe(t, true)
	return &pb.ProcessesReply{Processes: list, Unattributed: rest}, nil
}

// An answer must fit into a message, whatever the sandbox does. The first
// maxDescribed processes are described in full, with at most maxText bytes of
// each text. For the others only the kernel's process table is reported.
const (
	maxDescribed = 2000
	maxText      = 1024
	maxKilled    = 10_000 // in one answer
)

// describe returns all that is known of processes. With sockets it also returns
// their listening sockets, and as rest those whose process it could not find.
func (d *daemon) describe(t proc.Table, sockets bool) (list []*pb.Process, rest []*pb.Socket) {
	if len(t) == 0 {
		return nil, nil // there is no other process that could listen
	}
	defer pid1.BlockControl()()
	listening := map[uint64]*pb.Socket{}
	if sockets {
		for _, s := range proc.Listening() {
			listening[s.Inode] = &pb.Socket{Network: s.Network, Address: printable(s.Address)}
		}
	}
	found := map[uint64]bool{}
	of := d.attribution(t)
	for i := range t {
		p := &t[i]
		var more proc.Detail
		if i < maxDescribed {
			more = proc.Look(*p, len(listening) > 0)
		}
		from := of(p)
		m := &pb.Process{
			Pid: int64(p.PID), Parent: int64(p.Parent), Started: p.Started, Uid: more.UID,
			State: state(p), Comm: p.Comm, CommandLine: cut(bytes.TrimRight(more.CommandLine, "\x00")),
			Executable: cut([]byte(more.Executable)), Service: from.service, Session: from.session,
		}
		for _, inode := range more.Inodes {
			if s := listening[inode]; s != nil {
				m.Listening = append(m.Listening, s)
				found[inode] = true
			}
		}
		list = append(list, m)
	}
	for _, inode := range slices.Sorted(maps.Keys(listening)) {
		if s := listening[inode]; !found[inode] && !d.ports.Own(s) {
			rest = append(rest, s)
		}
	}
	return list, rest
}

// state returns the letter of a process's state. X is for a dead one that is not
// a zombie yet.
func state(p *proc.Process) string {
	if p.Ending && !p.Zombie() {
		return "X"
	}
	return string(rune(p.State))
}

func cut(b []byte) []byte { return b[:min(len(b), maxText)] }

// printable makes text from the sandbox valid for a string field of a message.
func printable(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// attribution returns a function that tells for which session or service a
// process of t runs: the one for which it, the nearest process above it, or the
// leader of its kernel session was started. A pid counts only until its command
// has been waited for. After that the kernel may reuse it, and an agent's
// process could get a service's pid and count as that service.
func (d *daemon) attribution(t proc.Table) func(*proc.Process) origin {
	d.mu.Lock()
	alive := make(map[int]origin, len(d.commands))
	past := maps.Clone(d.past)
	for c := range d.commands {
		if c.over() {
			if c.process != nil && c.session != nil { // its end has not been recorded yet
				past[c.process.PID] = c.session.id
			}
			continue
		}
		from := origin{service: c.service}
		if c.session != nil {
			from.session = c.session.id
		}
		alive[c.process.PID] = from
	}
	d.mu.Unlock()
	index := t.Index()
	return func(p *proc.Process) (from origin) {
		found := false
		proc.Ancestors(index, p, func(q *proc.Process) bool {
			if from, found = alive[q.PID]; !found {
				from, found = alive[q.Session]
			}
			return !found
		})
		if !found {
			from.session = past[p.Session]
		}
		return from
	}
}

// fewPast is the number of ended commands up to which past is not pruned.
const fewPast = 4096

// prune removes kernel sessions that no process is in. The caller holds d.mu.
func (d *daemon) prune() {
	t, err := proc.List()
	if err != nil {
		return
	}
	left := map[int]bool{}
	for _, p := range t {
		left[p.Session] = true
	}
	maps.DeleteFunc(d.past, func(session int, _ string) bool { return !left[session] })
	d.pastLimit = max(fewPast, 2*len(d.past))
}
