package run

import (
	"context"
	"path/filepath"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
)

// Worker is a process that makes attempts which another process schedules.
type Worker struct {
	record.Worker

	// Output is the file for what its plugins write to stderr.
	Output string
	// Scratch is a folder of this user, on a disk of this machine, for attempts
	// that are under way. What is left there after a kill is removed by the next
	// worker on this machine.
	Scratch string
}

// label returns the label for what the worker makes. Workers of one run on one
// machine must not remove each other's sandboxes.
func (w *Worker) label(run string) string { return run + "-" + w.Pilot }

func (w *Worker) record() *record.Worker {
	if w == nil {
		return nil
	}
	return &w.Worker
}

// Node is a machine that is prepared for attempts. It is safe for concurrent use,
// except Start.
type Node struct {
	Executor

	// Scratch is a folder of this process, to be made, on a disk of this machine.
	Scratch string
	places  *places
	demand  func(*plan.Trial) Demand
}

// NewNode makes a node whose attempts are made by x, with the plan, the limits and the
// memory of s, which are those of this process.
func NewNode(x Executor, s Spec, scratch string) *Node { //nolint:gocritic // once for a process
	return &Node{Executor: x, Scratch: scratch, places: newPlaces(s.Limits, s.freeMiB()), demand: Demands(s.Plan)}
}

// Work prepares this machine for the attempts of s.Worker, calls work, and removes
// what the attempts left. First it removes what dead processes of any run left
// here. The limits of s are those of this process.
func Work(ctx context.Context, s Spec, work func(*Node) error) error {
	return s.prepared(ctx, func(h *here) error {
		return work(NewNode(h, s, filepath.Join(h.place.Disk, "attempts")))
	})
}

// Start gives an attempt of a trial its place in this process, which leave gives
// up. ok is false if a limit is reached.
func (n *Node) Start(t *plan.Trial) (p trial.Places, leave func(), ok bool) {
	h := n.places.holder(n.demand(t))
	if h.start() != admitted {
		return nil, nil, false
	}
	return h, h.end, true
}
