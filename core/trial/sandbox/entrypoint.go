package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// Entrypoint is the name of the service that runs in the main container next to
// the agent.
const Entrypoint = "entrypoint"

// idle is the command that an image's entrypoint is given to run in the main
// container, instead of the image's own command, because the agent works there.
// Formats give it to the entrypoint of a task.
var idle = []string{"sh", "-c", "sleep infinity"}

// program returns the command that runs in the main container next to the
// agent.
func (w *Sandbox) program(e *task.Environment) []string {
	switch img := &w.Made.Image; {
	case len(e.Entrypoint) > 0:
		return slices.Concat(e.Entrypoint, e.Command)
	case len(e.Command) > 0:
		return slices.Concat(img.Entrypoint, e.Command)
	case len(img.Entrypoint) > 0:
		return slices.Concat(img.Entrypoint, idle)
	default:
		return nil
	}
}

// StartEntrypoint starts the program of the main container, if there is one,
// and waits as AwaitEntrypoint does.
func (w *Sandbox) StartEntrypoint(ctx context.Context, e *task.Environment) (note string, err error) {
	argv := w.program(e)
	if len(argv) == 0 {
		return "", nil
	}
	s := host.Service{Name: Entrypoint, Argv: argv, User: cmp.Or(e.User, w.Made.Image.User), Dir: w.Dir, Env: List(w.Env)}
	if _, err := w.StartService(ctx, s); err != nil {
		return "", fmt.Errorf("start the program of the main container: %w", err)
	}
	return w.AwaitEntrypoint(ctx, e)
}

// How long the processes of an entrypoint must stay the same before it counts
// as a program in the foreground, which never runs the command that it is
// given.
const (
	quietServer  = 2 * time.Second // one of them listens
	quietProgram = 10 * time.Second
)

// idles gives what an entrypoint has started a head start. If nothing but the idle
// command runs, it ends that: the sandbox does not need it, and an agent could turn it
// into another program.
func (w *Sandbox) idles(ctx context.Context) error {
	alone, err := w.headStart(ctx)
	if alone && err == nil {
		_, err = w.Quiesce(ctx)
	}
	return err
}

// headStart gives programs that were just started the time to listen, where
// nothing tells when they are ready. It ends as soon as one listens, or none
// runs, which it reports. Engines take about as long to start containers, and tasks
// rely on it.
func (w *Sandbox) headStart(ctx context.Context) (none bool, err error) {
	begin := time.Now()
	for pause := 5 * time.Millisecond; time.Since(begin) < limits.HeadStart; pause = min(2*pause, 100*time.Millisecond) {
		ps, err := w.Processes(ctx)
		if err != nil {
			return false, err
		}
		if now := watched(ps); now.listens || !now.works {
			return !now.works, nil
		}
		if err := limits.Sleep(ctx, pause); err != nil {
			return false, err
		}
	}
	return false, nil
}

// AwaitEntrypoint waits until the entrypoint of the image has done its work and
// runs the idle command that it was given, and what it started had a moment to
// listen. It also stops when the entrypoint
// has ended, when it is a program in the foreground, or after a minute (or the
// start time of the task, if that is shorter). note then says which of these
// happened.
func (w *Sandbox) AwaitEntrypoint(ctx context.Context, e *task.Environment) (note string, err error) {
	if (len(e.Entrypoint) > 0 || len(e.Command) > 0) && !slices.Equal(e.Command, idle) {
		return "", nil // it does not get the idle command
	}
	limit := limits.Entrypoint
	if t := e.StartTime.Std(); t > 0 {
		limit = min(limit, t)
	}
	var last []host.Key
	begin := time.Now()
	same := begin // time of the last change
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		ps, err := w.Processes(ctx)
		if err != nil {
			return "", err
		}
		now := watched(ps)
		if now.idle {
			return "", w.idles(ctx)
		}
		if !now.runs {
			return w.entrypointEnded(ctx)
		}
		if now.busy || !slices.Equal(now.keys, last) {
			last, same = now.keys, time.Now()
		}
		if still := time.Since(same); still > quietProgram || now.listens && still > quietServer {
			return "", nil
		}
		if time.Since(begin) > limit {
			return fmt.Sprintf("the entrypoint of the image had not run the command that it was given after %s: the agent did not wait for it any longer", limit), nil
		}
		if err := limits.Sleep(ctx, pause); err != nil {
			return "", err
		}
	}
}

// entrypointEnded says how the entrypoint failed, if it did. What has ended may not
// have been waited for yet.
func (w *Sandbox) entrypointEnded(ctx context.Context) (note string, err error) {
	begin := time.Now()
	s := w.service(ctx, Entrypoint)
	for s.Name != "" && s.Exit == nil && time.Since(begin) < quietServer {
		if err := limits.Sleep(ctx, 5*time.Millisecond); err != nil {
			return "", err
		}
		s = w.service(ctx, Entrypoint)
	}
	if s.Exit == nil || s.Exit.OK() {
		return "", nil
	}
	return fmt.Sprintf("the entrypoint of the image ended with exit code %d before it ran the command that it was given; its last output: %s",
		s.Exit.ExitCode, s.Output[max(0, len(s.Output)-limits.OutputTail):]), nil
}

// entering is the state of a sandbox's entrypoint according to its processes.
type entering struct {
	runs    bool // it has not ended
	idle    bool // it runs the idle command
	works   bool // a process runs something else
	listens bool
	busy    bool // a process computes, or sleeps for a fixed time
	keys    []host.Key
}

func watched(ps host.Processes) (e entering) {
	for _, p := range ps.List {
		if p.State == "Z" || p.State == "X" {
			continue
		}
		e.keys = append(e.keys, p.Key())
		e.runs = e.runs || p.Service == Entrypoint
		e.listens = e.listens || len(p.Listening) > 0
		e.busy = e.busy || p.State == "R" || p.State == "D" || p.Comm == "sleep"
		if isIdle(p.Argv()) {
			e.idle = e.idle || p.Service == Entrypoint
		} else {
			e.works = true
		}
	}
	return e
}

func isIdle(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	argv = append([]string{path.Base(argv[0])}, argv[1:]...)
	return slices.Equal(argv, idle) || slices.Equal(argv, []string{"sleep", "infinity"})
}

// Describe lists processes for messages. Text that they chose themselves is
// quoted.
func Describe(ps []host.Process, more []host.Socket) string {
	var names []string
	for i, p := range ps {
		if i == limits.ListedProcesses {
			names = append(names, fmt.Sprintf("%d more", len(ps)-i))
			break
		}
		n := processName(p)
		if len(p.Listening) > 0 {
			n += " on " + addresses(p.Listening)
		}
		names = append(names, n)
	}
	if len(more) > 0 {
		names = append(names, "something on "+addresses(more))
	}
	return strings.Join(names, ", ")
}

func processName(p host.Process) string {
	line := strings.Join(p.Argv(), " ")
	if line == "" {
		line = p.Comm
	}
	return fmt.Sprintf("%q (%d)", recorder.Cut(line, 80), p.PID)
}

func addresses(ss []host.Socket) string {
	var out []string
	for i, s := range ss {
		if i == limits.ListedProcesses {
			break
		}
		out = append(out, fmt.Sprintf("%s %s", s.Network, recorder.Cut(s.Address, 80)))
	}
	return strings.Join(out, ", ")
}
