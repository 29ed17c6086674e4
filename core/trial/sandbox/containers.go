package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

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

// stopSides kills everything in the sidecars, except those that are gone.
func (w *Sandbox) stopSides(ctx context.Context) error {
	for _, side := range w.Sidecars {
		if side.Gone() {
			continue
		}
		_, over := side.exit(ctx)
		side.stopped = !over
		if _, err := side.Quiesce(ctx); err != nil {
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
