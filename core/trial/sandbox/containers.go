package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// ErrContainer means that a command or artifact names a container that the
// sandbox does not have.
var ErrContainer = errors.New("there is no container")

// in returns the container with that name; "" and "main" are w itself.
func (w *Sandbox) in(service string) (*Sandbox, error) {
	if service == "" || service == "main" {
		return w, nil
	}
	i := slices.IndexFunc(w.Sidecars, func(c *Sidecar) bool { return c.task.Name == service })
	if i < 0 {
		return nil, fmt.Errorf("%w %q", ErrContainer, service)
	}
	side := w.Sidecars[i]
	if side.Gone() {
		return nil, fmt.Errorf("container %q is gone: %w", service, side.Err())
	}
	return side.Sandbox, nil
}

// own returns ps without the sockets of sidecars, which share the network of
// the main container and were not left by the agent.
func (w *Sandbox) own(ctx context.Context, ps host.Processes) host.Processes {
	if len(ps.Unattributed) == 0 || len(w.Sidecars) == 0 {
		return ps
	}
	theirs := map[host.Socket]bool{}
	for _, side := range w.Sidecars {
		if side.Gone() {
			continue
		}
		others, err := side.Processes(ctx)
		if err != nil {
			continue // sockets of unknown origin stay unattributed
		}
		for _, p := range others.List {
			for _, s := range p.Listening {
				theirs[s] = true
			}
		}
	}
	ps.Unattributed = slices.DeleteFunc(ps.Unattributed, func(s host.Socket) bool { return theirs[s] })
	return ps
}

// haltSides stops the sidecars, except those that are gone.
func (w *Sandbox) haltSides(ctx context.Context) error {
	for _, side := range w.Sidecars {
		if side.Gone() {
			continue
		}
		if _, err := side.Freeze(ctx); err != nil {
			return fmt.Errorf("container %q: %w", side.task.Name, err)
		}
	}
	return nil
}

// resumeSides resumes the sidecars.
func (w *Sandbox) resumeSides(ctx context.Context) error {
	var errs []error
	for _, side := range w.Sidecars {
		if side.Gone() {
			continue
		}
		if err := side.Thaw(ctx); err != nil {
			errs = append(errs, fmt.Errorf("container %q: %w", side.task.Name, err))
		}
	}
	return errors.Join(errs...)
}
