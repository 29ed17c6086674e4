package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// program is what a sidecar's service is called in its sandboxd.
const program = "sidecar"

// Sidecars are the sidecars of one sandbox. The zero value, and nil, are none. Not
// safe for concurrent use.
type Sidecars struct {
	task *task.Environment
	all  []*side // in the order of the task
}

type side struct {
	*Sandbox
	task *task.Sidecar
	env  map[string]string // resolved
}

// SidecarFolders makes a control folder for each sidecar of spec and notes it there.
// Its names are below dir, which must be as NewFolder wants it. On an error
// none is left.
func SidecarFolders(dir, sandboxd string, spec *environment.Spec) (made []*host.Folder, err error) {
	for i := range spec.Sidecars {
		f, err := host.NewFolder(filepath.Join(dir, fmt.Sprint("b", i)), sandboxd)
		if err != nil {
			return nil, errors.Join(err, CloseFolders(made))
		}
		made = append(made, f)
		spec.Sidecars[i].Control = f.Path
	}
	return made, nil
}

// CloseFolders removes control folders.
func CloseFolders(folders []*host.Folder) error {
	var errs []error
	for _, f := range folders {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// NewSidecars is the sidecars that an environment says it made. It owns folders. env
// are their variables, in the order of the task.
func NewSidecars(e *task.Environment, made environment.Sandbox, folders []*host.Folder, env []map[string]string) (*Sidecars, error) {
	s := &Sidecars{task: e}
	for i := range e.Sidecars {
		t := &e.Sidecars[i]
		at := slices.IndexFunc(made.Sidecars, func(m environment.SidecarSandbox) bool { return m.Name == t.Name })
		if at < 0 {
			return s, errors.Join(fmt.Errorf("the environment made no container %q", t.Name), CloseFolders(folders[i:]))
		}
		m := &made.Sidecars[at]
		all := maps.Clone(m.Image.Env)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, env[i])
		w := New(folders[i], environment.Sandbox{Stream: m.Stream, PID: m.PID, Image: m.Image}, cmp.Or(t.Workdir, m.Image.Workdir, "/"), all)
		w.User = cmp.Or(t.User, m.Image.User)
		s.all = append(s.all, &side{w, t, all})
	}
	return s, nil
}

// Sandboxes are the sidecars by name.
func (s *Sidecars) Sandboxes() map[string]*Sandbox {
	if s == nil {
		return nil
	}
	out := map[string]*Sandbox{}
	for _, c := range s.all {
		out[c.task.Name] = c.Sandbox
	}
	return out
}

// Connect waits for the first words of all.
func (s *Sidecars) Connect(ctx context.Context) error {
	if s == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range s.all {
		g.Go(func() error { return named(c.task.Name, c.Connect(ctx)) })
	}
	return g.Wait()
}

// named says whose error it is.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sidecar %q: %w", name, err)
}

// StartedSidecar is how the start of one sidecar went.
type StartedSidecar struct {
	Name       string
	Start, End time.Time
	Err        error // nil: it is in the state that others wait for
}

// Before starts the sidecars that do not wait for the main container, and
// waits until all are as the task wants them: healthy where there is a
// healthcheck, at an end where another waits for that. It stops at the first
// failure, which it returns. now is the clock of the record.
func (s *Sidecars) Before(ctx context.Context, now func() time.Time) ([]StartedSidecar, error) {
	return s.start(ctx, now, false)
}

// After starts the sidecars that wait for the main container.
func (s *Sidecars) After(ctx context.Context, now func() time.Time) ([]StartedSidecar, error) {
	return s.start(ctx, now, true)
}

func (s *Sidecars) start(ctx context.Context, now func() time.Time, later bool) ([]StartedSidecar, error) {
	if s == nil {
		return nil, nil
	}
	done := map[string]chan struct{}{}
	var these []*side
	for _, c := range s.all {
		if s.waitsForMain(c.task.Name, 0) == later {
			these = append(these, c)
			done[c.task.Name] = make(chan struct{})
		}
	}
	var mu sync.Mutex
	var out []StartedSidecar
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range these {
		g.Go(func() error {
			for other := range c.task.DependsOn {
				if ready := done[other]; ready != nil {
					select {
					case <-ready:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
			}
			r := StartedSidecar{Name: c.task.Name, Start: now()}
			r.Err = named(r.Name, s.run(ctx, c))
			r.End = now()
			mu.Lock()
			defer mu.Unlock()
			out = append(out, r)
			if r.Err == nil {
				close(done[r.Name])
			}
			return r.Err
		})
	}
	err := g.Wait()
	if err == nil {
		err = s.ended(ctx, these)
	}
	return out, err
}

// waitsForMain says whether a sidecar waits for the main container, itself or
// by way of others. A task has no circles.
func (s *Sidecars) waitsForMain(name string, depth int) bool {
	i := slices.IndexFunc(s.all, func(c *side) bool { return c.task.Name == name })
	if i < 0 || depth > len(s.all) {
		return false
	}
	for other := range s.all[i].task.DependsOn {
		if other == task.MainContainer || s.waitsForMain(other, depth+1) {
			return true
		}
	}
	return false
}

// run starts the program of one sidecar and waits for its state.
func (s *Sidecars) run(ctx context.Context, c *side) error {
	argv := c.argv()
	if len(argv) == 0 {
		return errors.New("neither the task nor its image says what it runs: write a command")
	}
	if _, err := c.StartService(ctx, host.Service{Name: program, Argv: argv, Env: List(c.env), Dir: c.Dir, User: c.User}); err != nil {
		return fmt.Errorf("start %q: %w", argv, err)
	}
	if s.awaited(c.task.Name, task.StateCompleted) {
		return c.complete(ctx)
	}
	if h := c.task.Healthcheck; h != nil {
		return c.healthy(ctx, *h)
	}
	return nil
}

// argv is what runs, as the compose specification says: an entrypoint of the
// task takes the place of the image's with its command.
func (c *side) argv() []string {
	img := c.Made.Image
	switch {
	case len(c.task.Entrypoint) > 0:
		return slices.Concat(c.task.Entrypoint, c.task.Command)
	case len(c.task.Command) > 0:
		return slices.Concat(img.Entrypoint, c.task.Command)
	default:
		return slices.Concat(img.Entrypoint, img.Cmd)
	}
}

// awaited says whether any container waits for that state of name.
func (s *Sidecars) awaited(name, state string) bool {
	return s.task.DependsOn[name] == state ||
		slices.ContainsFunc(s.all, func(c *side) bool { return c.task.DependsOn[name] == state })
}

// quick is how often a sidecar is probed at first. A program is ready when it
// is, and not at the next of its healthcheck's intervals, which count failures.
const quick = 250 * time.Millisecond

// healthy waits for a healthcheck, or for the program's end.
func (c *side) healthy(ctx context.Context, h task.Healthcheck) error {
	h.StartPeriod += h.Interval // the first probe that counts comes after one
	h.StartInterval = min(h.StartInterval, task.Duration(quick))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for limits.Sleep(ctx, quick) == nil {
			if exit, over := c.exit(ctx); over {
				cancel(fmt.Errorf("ended with exit code %d before it was healthy", exit))
			}
		}
	}()
	err := c.Healthy(ctx, &h)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("not healthy: %w; its last output: %s", err, c.ServiceOutput(context.WithoutCancel(ctx), program))
}

// complete waits for the program's end.
func (c *side) complete(ctx context.Context) error {
	for {
		exit, over := c.exit(ctx)
		switch {
		case over && exit == 0:
			return nil
		case over:
			return fmt.Errorf("ended with exit code %d; its last output: %s", exit, c.ServiceOutput(ctx, program))
		case c.Gone():
			return fmt.Errorf("its container is gone: %w", c.Err())
		}
		if err := limits.Sleep(ctx, quick/10); err != nil {
			return err
		}
	}
}

// exit is the exit code of the program, once it has ended; a signal is a
// negative one.
func (c *side) exit(ctx context.Context) (code int, over bool) {
	states, err := c.Services(ctx)
	if err != nil {
		return 0, false
	}
	for _, s := range states {
		if s.Name == program && s.Exit != nil && s.PID == 0 {
			if s.Exit.Signal != 0 {
				return -int(s.Exit.Signal), true
			}
			return s.Exit.ExitCode, true
		}
	}
	return 0, false
}

// ended is an error if a program has failed by now.
func (s *Sidecars) ended(ctx context.Context, these []*side) error {
	for _, c := range these {
		if exit, over := c.exit(ctx); over && exit != 0 {
			return named(c.task.Name, fmt.Errorf("ended with exit code %d; its last output: %s", exit, c.ServiceOutput(ctx, program)))
		}
	}
	return nil
}

// SidecarRecord is where an attempt is written down.
type SidecarRecord interface {
	Dir() string
	WriteFile(file string, data []byte) error
}

// Keep looks at all, while they can still be asked, and writes what each said
// to a file of the attempt. text is what may be written of a text, cut to a
// length.
func (s *Sidecars) Keep(ctx context.Context, to SidecarRecord, text func(string, int) string) ([]record.Sidecar, error) {
	if s == nil {
		return nil, nil
	}
	var out []record.Sidecar
	var errs []error
	for _, c := range s.all {
		r := record.Sidecar{Name: c.task.Name, Image: c.Made.Image}
		switch {
		case c.Sandbox == nil:
			r.Lost = "it never connected"
		case c.Gone():
			r.Lost = text(c.Err().Error(), limits.ErrorText)
		default:
			if exit, over := c.exit(ctx); over {
				r.Exit = &exit
			}
		}
		if said := c.output(ctx); len(said) > 0 {
			r.Log = record.SidecarsDir + "/" + r.Name + ".log"
			err := os.MkdirAll(filepath.Join(to.Dir(), record.SidecarsDir), 0o755)
			if err == nil {
				err = to.WriteFile(r.Log, []byte(text(string(said), len(said))))
			}
			errs = append(errs, err)
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// output is the last 64 KiB that the program wrote to both outputs.
func (c *side) output(ctx context.Context) []byte {
	if c.Gone() {
		return nil
	}
	states, err := c.Services(ctx)
	if err != nil {
		return nil
	}
	for _, s := range states {
		if s.Name == program {
			return s.Output
		}
	}
	return nil
}
