package maker

import (
	"context"
	"fmt"
)

// Probe says whether sandboxes can be made on this machine, by building one of
// the host's /usr alone in which nothing runs. It leaves nothing behind, takes
// some milliseconds the first time, and no time once it succeeded.
func (m *Maker) Probe(ctx context.Context) error {
	_, err := m.probe.get(func() (struct{}, error) { return struct{}{}, m.tryOut(ctx) })
	return err
}

func (m *Maker) tryOut(ctx context.Context) (err error) {
	h := &host{}
	if h.folders, h.links, err = visible("/"); err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	s, err := m.start()
	if err != nil {
		return fmt.Errorf("try a sandbox: %w", err)
	}
	defer s.end()
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
