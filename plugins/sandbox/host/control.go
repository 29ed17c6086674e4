package host

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/berth-eval/berth/plugins/internal/wire"
	pb "github.com/berth-eval/berth/plugins/proto/v1/sandboxpb"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// Freeze stops every process but sandboxd and returns once all have stopped.
// Commands cannot start until Thaw (sandbox.ErrFrozen); files can be read.
// After an error some may have stopped, so Thaw is needed as well. To freeze it
// again stops what has had itself continued, and returns it.
func (s *Sandbox) Freeze(ctx context.Context) (Frozen, error) {
	r, err := s.control.Freeze(ctx, &pb.FreezeRequest{})
	return decode[Frozen]("freeze", r, err)
}

// Thaw continues the processes that Freeze stopped.
func (s *Sandbox) Thaw(ctx context.Context) error {
	_, err := s.control.Thaw(ctx, &pb.ThawRequest{})
	return wrap("thaw", err)
}

// Processes lists the running processes without sandboxd.
func (s *Sandbox) Processes(ctx context.Context) (Processes, error) {
	r, err := s.control.Processes(ctx, &pb.ProcessesRequest{})
	return decode[Processes]("list processes", r, err)
}

// Settle stops an agent after its last turn and after Detach. It kills the
// first process of each command of the sessions (of all sessions if there are
// none), every process that runs a file below one of bundles (absolute paths
// inside), and each terminal's shell that has no children. A shell with
// children is stopped instead, because killing it would hang up its foreground
// job. The answer lists the remaining processes, read while all were stopped.
// Settle fails with ErrTampered as Untouched does.
func (s *Sandbox) Settle(ctx context.Context, sessions, bundles []string) (Settled, error) {
	r, err := s.control.Settle(ctx, &pb.SettleRequest{Sessions: sessions, Bundles: wire.Bytes(bundles)})
	return decode[Settled]("settle", r, err)
}

// Sweep kills every process that is not in known, does not descend from one in
// known, and is not a service, until none is left. It returns the killed
// processes.
func (s *Sandbox) Sweep(ctx context.Context, known []Key) ([]Process, error) {
	q := &pb.SweepRequest{}
	for _, k := range known {
		q.Known = append(q.Known, &pb.ProcessKey{Pid: int64(k.PID), Started: k.Started})
	}
	r, err := s.control.Sweep(ctx, q)
	return decodeAll[Process]("sweep processes", r.GetKilled(), err)
}

// Quiesce kills every process except sandboxd, including services, and returns
// the killed processes.
func (s *Sandbox) Quiesce(ctx context.Context) ([]Process, error) {
	r, err := s.control.Quiesce(ctx, &pb.QuiesceRequest{})
	return decodeAll[Process]("kill all processes", r.GetKilled(), err)
}

// StartService runs the image's entrypoint or a service of the task. The
// service and its descendants are never counted as processes that an agent
// left.
func (s *Sandbox) StartService(ctx context.Context, v Service) (pid int, err error) {
	r, err := s.control.StartService(ctx, &pb.StartServiceRequest{Name: v.Name, Command: &pb.ExecStart{
		Argv: wire.Bytes(v.Argv), Env: wire.Bytes(v.Env), Dir: []byte(v.Dir), User: v.User,
	}})
	return int(r.GetPid()), wrap(fmt.Sprintf("start service %q", v.Name), err)
}

// RestartServices starts every service that is not running, in the order of
// their first start, and returns their names. A service whose program,
// interpreter or script changed after Mark is not started but returned in
// changed.
func (s *Sandbox) RestartServices(ctx context.Context) (started []string, changed []ServiceChange, err error) {
	r, err := s.control.RestartServices(ctx, &pb.RestartServicesRequest{})
	changed, err = decodeAll[ServiceChange]("restart services", r.GetChanged(), err)
	return r.GetStarted(), changed, err
}

// Mark makes a list of the system's files before the agent's first command: Changes
// reports what changed after it. made is a moment before the sandbox was made and after
// its image was; zero: unknown. It fails with fault.ErrTooLarge if there are more
// than 500,000 files.
func (s *Sandbox) Mark(ctx context.Context, c system.Commands, made time.Time) error {
	_, err := s.control.Mark(ctx, &pb.MarkRequest{
		Env: wire.Bytes(c.Env), Dir: []byte(c.Dir), Programs: wire.Bytes(c.Programs), Work: wire.Bytes(c.Work), Made: nanos(made),
	})
	return wrap("list the files of the system", err)
}

// Changes makes the list again, and reports what was added, changed or removed since
// the list before, apart from what is in some folders, and which running services
// could have been changed. Without a Mark there are none.
func (s *Sandbox) Changes(ctx context.Context, without ...string) (Changed, error) {
	r, err := s.control.Changes(ctx, &pb.ChangesRequest{Without: wire.Bytes(without)})
	return decode[Changed]("look for changes", r, err)
}

// Names reports which files that a command runs have changed after Mark.
func (s *Sandbox) Names(ctx context.Context, argv []string) ([]string, error) {
	r, err := s.control.Changes(ctx, &pb.ChangesRequest{Argv: wire.Bytes(argv)})
	changed, err := decode[Changed]("look for changes", r, err)
	return changed.Files, err
}

// SuspectServices reports the running services that could have been changed after
// Mark.
func (s *Sandbox) SuspectServices(ctx context.Context) ([]ServiceChange, error) {
	r, err := s.control.Changes(ctx, &pb.ChangesRequest{ServicesOnly: true})
	return decodeAll[ServiceChange]("look for changed services", r.GetServices(), err)
}

// Services returns the state of each service, in the order of their first
// start.
func (s *Sandbox) Services(ctx context.Context) ([]ServiceState, error) {
	r, err := s.control.Services(ctx, &pb.ServicesRequest{})
	if err != nil {
		return nil, wrap("look at services", err)
	}
	var out []ServiceState
	for _, v := range r.GetServices() {
		state := ServiceState{Name: v.GetName(), PID: int(v.GetPid()), Output: v.GetOutput()}
		if v.GetExit() != nil {
			result := resultOf(v.GetExit())
			state.Exit = &result
		}
		out = append(out, state)
	}
	return out, nil
}

// Starts says what a session has started in a sandbox.
type Starts struct {
	Started uint64 `json:"started"` // commands and terminals
	// Refused is why the first program that failed to start failed, if the
	// cause is in the file system. Empty: no such failure.
	Refused string `json:"refused"`
}

// Starts returns what a session has started so far.
func (s *Sandbox) Starts(ctx context.Context, session string) (Starts, error) {
	r, err := s.control.Starts(ctx, &pb.StartsRequest{Session: session})
	return decode[Starts]("ask what was started", r, err)
}

// Fresh creates each folder (absolute paths) new: empty, owned by user (empty:
// root), with mode perm (0: 0755). It moves aside and returns what existed
// there, and any link or file in place of a parent folder. An empty folder is
// not reported.
func (s *Sandbox) Fresh(ctx context.Context, user string, perm uint32, paths ...string) ([]Moved, error) {
	r, err := s.control.Fresh(ctx, &pb.FreshRequest{Paths: wire.Bytes(paths), User: user, Mode: perm})
	return decodeAll[Moved]("make fresh folders", r.GetMoved(), err)
}

func resultOf(e *pb.Exit) sandbox.Result {
	return sandbox.Result{
		ExitCode: int(e.GetCode()), Signal: syscall.Signal(e.GetSignal()), TimedOut: e.GetTimedOut(), Killed: e.GetKilled(),
	}
}
