package maker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/environments/local/internal/ids"
)

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
