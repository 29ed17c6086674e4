package maker

import (
	"fmt"

	"github.com/berth-eval/berth/environments/local/internal/cgroup"
)

// Spare is the first process of a sandbox: it waits in namespaces, and a control
// group, of its own for an order. It has received nothing of any sandbox.
//
// Stop starts one, because the sandbox on the files of the stopped one is usually
// created next, and a process in new namespaces takes a third of that time.
type Spare struct {
	id      string // of its sandbox
	started *started
	group   *cgroup.Group // or nil
	limits  cgroup.Limits // of the group
}

// spare starts one.
func (m *Maker) spare(l cgroup.Limits) (*Spare, error) {
	s := &Spare{id: newID(), limits: l}
	var err error
	if s.group, err = m.group(s.id, l); err != nil {
		return nil, err
	}
	if s.started, err = m.start(s.group); err != nil {
		_ = closeGroup(s.group) // it is empty
		return nil, err
	}
	return s, nil
}

// Spare takes the process that Stop has started, for Order.Spare, or nil. The
// caller ends it if no order comes.
func (m *Maker) Spare(id string) *Spare {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.boxes[id]
	if b == nil {
		return nil
	}
	s := b.spare
	b.spare = nil
	return s
}

// taken returns the spare of an order if it has the order's limits, or a new one.
func (m *Maker) taken(o Order) (*Spare, error) {
	if o.Spare != nil && o.Spare.limits == o.Limits {
		return o.Spare, nil
	}
	o.Spare.End()
	return m.spare(o.Limits)
}

// End ends a process that got no order; nil is none.
func (s *Spare) End() {
	if s != nil {
		_ = s.end() // it did nothing
	}
}

// end ends the process, and frees its ids and its group.
func (s *Spare) end() error {
	s.started.end()
	if err := closeGroup(s.group); err != nil {
		return fmt.Errorf("remove its control group: %w", err)
	}
	return nil
}
