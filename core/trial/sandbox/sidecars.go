package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// program is the name of a sidecar's service in its sandboxd.
const program = "sidecar"

// Sidecar is one sidecar of a sandbox.
type Sidecar struct {
	*Sandbox

	task    *task.Sidecar
	missing bool // the environment did not make it
	stopped bool // its program ran until Stop
}

// named adds the name of the sidecar to an error.
func (c *Sidecar) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sidecar %q: %w", c.task.Name, err)
}

// StartedSidecar is the result of starting one sidecar.
type StartedSidecar struct {
	Name       string
	Start, End time.Time
	Err        error // nil: it is in the state that other containers wait for
}

// StartSidecars starts the sidecars that do not wait for the main container or,
// with later, those that do, and waits until all are in the state that the task
// wants: healthy if there is a healthcheck, ended if another container waits
// for that, otherwise with a moment to listen. It stops at the first failure, which it returns. now is the clock
// of the record.
func (w *Sandbox) StartSidecars(ctx context.Context, now func() time.Time, later bool) ([]StartedSidecar, error) {
	done := map[string]chan struct{}{}
	var these []*Sidecar
	for _, c := range w.Sidecars {
		if w.waitsForMain(c.task.Name, 0) == later {
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
			r.Err = c.named(w.run(ctx, c))
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
		err = ended(ctx, these)
	}
	return out, err
}

// waitsForMain reports whether a sidecar waits for the main container, directly
// or indirectly. A task has no cycles.
func (w *Sandbox) waitsForMain(name string, depth int) bool {
	i := slices.IndexFunc(w.Sidecars, func(c *Sidecar) bool { return c.task.Name == name })
	if i < 0 || depth > len(w.Sidecars) {
		return false
	}
	for other := range w.Sidecars[i].task.DependsOn {
		if other == task.MainContainer || w.waitsForMain(other, depth+1) {
			return true
		}
	}
	return false
}

// run starts the program of one sidecar and waits for its state.
func (w *Sandbox) run(ctx context.Context, c *Sidecar) error {
	argv := c.argv()
	if len(argv) == 0 {
		return errors.New("neither the task nor its image says what it runs: write a command")
	}
	if _, err := c.StartService(ctx, host.Service{Name: program, Argv: argv, Env: List(c.Env), Dir: c.Dir, User: c.User}); err != nil {
		return fmt.Errorf("start %q: %w", argv, err)
	}
	if w.awaited(c.task.Name, task.StateCompleted) {
		return c.complete(ctx)
	}
	if h := c.task.Healthcheck; h != nil {
		return c.healthy(ctx, *h)
	}
	_, err := c.headStart(ctx)
	return err
}

// argv returns the command to run, by the rules of the compose specification:
// an entrypoint of the task replaces the image's entrypoint and command.
func (c *Sidecar) argv() []string {
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

// awaited reports whether a container waits for that state of name.
func (w *Sandbox) awaited(name, state string) bool {
	return w.task.DependsOn[name] == state ||
		slices.ContainsFunc(w.Sidecars, func(c *Sidecar) bool { return c.task.DependsOn[name] == state })
}

// quick is the first interval of probes of a sidecar. The intervals of its
// healthcheck are for counting failures, and would delay a program that is
// ready.
const quick = 250 * time.Millisecond

// healthy waits until a healthcheck succeeds or the program ends.
func (c *Sidecar) healthy(ctx context.Context, h task.Healthcheck) error {
	h.StartPeriod += h.Interval // the first probe that counts comes after one interval
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

// complete waits until the program ends.
func (c *Sidecar) complete(ctx context.Context) error {
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

// exit returns the exit code of the program, once it has ended; a signal is a
// negative code.
func (c *Sidecar) exit(ctx context.Context) (code int, over bool) {
	s := c.service(ctx, program)
	switch {
	case s.Exit == nil || s.PID != 0:
		return 0, false
	case s.Exit.Signal != 0:
		return -int(s.Exit.Signal), true
	}
	return s.Exit.ExitCode, true
}

// ended returns an error if a program has failed.
func ended(ctx context.Context, these []*Sidecar) error {
	for _, c := range these {
		if exit, over := c.exit(ctx); over && exit != 0 {
			return c.named(fmt.Errorf("ended with exit code %d; its last output: %s", exit, c.ServiceOutput(ctx, program)))
		}
	}
	return nil
}

// SidecarRecord is where an attempt is recorded.
type SidecarRecord interface {
	Dir() string
	WriteFile(file string, data []byte) error
}

// KeepSidecars gets the state of all sidecars while they are still reachable,
// and writes the output of each to a file in the folder dir of the attempt. text
// returns a text without secrets, cut to a length.
func (w *Sandbox) KeepSidecars(ctx context.Context, to SidecarRecord, dir string, text func(string, int) string) ([]record.Sidecar, error) {
	var out []record.Sidecar
	var errs []error
	for _, c := range w.Sidecars {
		r := record.Sidecar{Name: c.task.Name, Image: c.Made.Image}
		switch {
		case c.Sandbox.Sandbox == nil:
			r.Lost = "it never connected"
		case c.Gone():
			r.Lost = text(c.Err().Error(), limits.ErrorText)
		default:
			if exit, over := c.exit(ctx); over && !c.stopped {
				r.Exit = &exit
			}
		}
		if said := c.service(ctx, program).Output; len(said) > 0 { // the last 64 KiB
			r.Log = dir + "/" + r.Name + ".log"
			err := os.MkdirAll(filepath.Join(to.Dir(), filepath.FromSlash(dir)), 0o755)
			if err == nil {
				err = to.WriteFile(r.Log, []byte(text(string(said), len(said))))
			}
			errs = append(errs, err)
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// in returns the container with that name; "" and "main" are w itself.
func (w *Sandbox) in(service string) (*Sandbox, error) {
	if service == "" || service == "main" {
		return w, nil
	}
	i := slices.IndexFunc(w.Sidecars, func(c *Sidecar) bool { return c.task.Name == service })
	if i < 0 {
		return nil, fmt.Errorf("there is no container %q", service)
	}
	side := w.Sidecars[i]
	if side.Gone() {
		return nil, fmt.Errorf("container %q is gone: %w", service, side.Err())
	}
	return side.Sandbox, nil
}

// sides calls f for each sidecar that is not gone.
func (w *Sandbox) sides(f func(*Sidecar) error) error {
	var errs []error
	for _, c := range w.Sidecars {
		if !c.Gone() {
			errs = append(errs, c.named(f(c)))
		}
	}
	return errors.Join(errs...)
}
