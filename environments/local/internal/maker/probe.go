package maker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/environments/local/internal/ids"
)

// Probe says whether sandboxes can be made on this machine, by building one of
// the host's /usr alone in which nothing runs. It leaves nothing behind, takes
// some milliseconds the first time, and no time once it succeeded.
func (m *Maker) Probe(ctx context.Context) error {
	_, err := m.probe.get(func() (struct{}, error) { return struct{}{}, m.tryOut(ctx) })
	return err
}

func (m *Maker) tryOut(ctx context.Context) error {
	h, err := lookAround()
	if err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	s, err := m.start(nil)
	if err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	defer s.end()
	if m.process.Mode == ids.RealRoot {
		// Where ids cannot be shifted a skeleton would do, and that is durable.
		ns, nsErr := s.userNamespace()
		if nsErr != nil {
			return fmt.Errorf("try a sandbox: %w", nsErr)
		}
		defer ns.Close()
		h.folders = slices.DeleteFunc(h.folders, func(f string) bool {
			ok, shiftErr := canShift("/"+f, ns)
			err = errors.Join(err, shiftErr)
			return !ok
		})
		if err != nil {
			return fmt.Errorf("try a sandbox: %w", err)
		}
	}
	plan, fds, err := m.plan(s, h, Order{probe: true})
	if err == nil {
		defer closeAll(fds)
		err = s.send(ctx, plan, fds)
	}
	if err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	return nil
}
