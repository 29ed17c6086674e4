package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/task"
)

// here runs the attempts of a run on this machine.
type here struct {
	*Spec

	place    *node.Place
	sandboxd string         // path of the installed program
	models   models.Gateway // nil: there are no models
	run      string         // id of the run
	label    string         // the owner of everything that is created
	hostname string
	cells    []map[string]cell.Cell // by cell, then by dataset
	count    atomic.Int64
	guard    *guard
	drift    func(*record.Result) error
	output   *output
}

// executor makes the executor for this machine, and reads the secrets of every
// cell. Fails when one is missing.
func (s *Spec) executor(place *node.Place, served *gateway.Gateway) (*here, error) {
	sandboxd, err := InstallSandboxd(s.Sandboxd)
	if err != nil {
		return nil, err
	}
	header := &s.Store.Manifest.Header
	h := &here{Spec: s, place: place, sandboxd: sandboxd, run: header.Run, label: place.Label}
	if served != nil {
		h.models = served
	}
	h.guard = &guard{formats: s.Formats}
	var accept func(drift string) error
	switch {
	case s.AcceptDrift && s.Worker != nil: // the process that schedules the run has recorded it
		accept = func(string) error { return nil }
	case s.AcceptDrift:
		accept = s.Store.Accept
	}
	h.drift = compare(s.Store.Index(), accept)
	h.hostname, _ = os.Hostname() //nolint:errcheck // an unknown host stays unnamed in the record
	for _, c := range s.Plan.Experiment.Cells {
		byDataset := map[string]cell.Cell{}
		for i := range c.Datasets {
			revealed, err := c.On(&c.Datasets[i]).Reveal()
			if err != nil {
				return nil, fmt.Errorf("cell %s: %w", c.Key, err)
			}
			byDataset[c.Datasets[i].Label] = revealed
		}
		h.cells = append(h.cells, byDataset)
	}
	return h, nil
}

// Attempt implements Executor.
func (h *here) Attempt(ctx context.Context, j Job) (record.Result, error) {
	t := &h.Plan.Tasks[j.Trial.Place]
	if t.Task == nil {
		return record.Result{}, fmt.Errorf("task %s is invalid and cannot be run", t.Name)
	}
	if err := h.guard.check(ctx, j.Trial.Place, t); err != nil {
		r := h.notTheTask(ctx, j, t, err)
		return r, j.Attempt.Publish(r)
	}
	number := strconv.FormatInt(h.count.Add(1), 36)
	runtime, disk := filepath.Join(h.place.Dir, number), ""
	if h.place.Disk != "" {
		disk = filepath.Join(h.place.Disk, number)
	}
	name := fmt.Sprintf("%s/%d", j.Trial.ID, j.Attempt.Number())
	defer h.output.begin(name, j.Attempt)()
	ctx = plugin.ForAttempt(ctx, name)
	env := task.Options{AllowEnv: t.Options.AllowEnv, LookupEnv: h.LookupEnv}
	return trial.Run(ctx, trial.Input{
		Run: h.run, Label: h.label, Worker: h.Worker.record(), Trial: j.Trial.ID, Repetition: j.Trial.Repetition, Attempt: j.Attempt.Number(),
		Host: h.hostname, Berth: h.Berth, Task: t.Task, Cell: h.cells[j.Trial.Cell][j.Trial.Dataset],
		Record: j.Attempt, Runtime: runtime, Disk: disk, Sandboxd: h.sandboxd, Plugins: trial.PluginsOf(h.Host), Checker: h.Plan.Checker, Gateway: h.models,
		LookupEnv: env.Lookup, Live: j.Live, Drift: h.drift, Places: j.Places, Keep: h.keep(), Origin: j.Origin, Ends: j.Ends, Memory: h.Memory,
	})
}

// keep says which attempts keep the files of their sandbox.
func (h *here) keep() trial.Keep {
	k := h.Plan.Experiment.Keep
	if k.Which == "" {
		return trial.Keep{}
	}
	return trial.Keep{Passed: k.Which == "all", MaxBytes: k.MiB << 20}
}

// notTheTask returns the result of an attempt whose task differs from the
// planned one, or for which ctx ended before the check.
func (h *here) notTheTask(ctx context.Context, j Job, t *plan.Task, why error) record.Result {
	now := time.Now().UTC()
	ended, by := record.TaskInvalid, record.ByTask
	if stopped, ok := outcome.Stopped(ctx); ok {
		ended, by = stopped, record.ByCore
	}
	p := record.Phase{Name: record.PhasePrepare, Who: by, Start: now, End: now, Error: why.Error()}
	return record.Result{
		Version: 1, Run: h.run, Trial: j.Trial.ID, Task: t.Name, TaskDigest: t.Task.Digest, Repetition: j.Trial.Repetition,
		Cell: h.cells[j.Trial.Cell][j.Trial.Dataset].Choices, Attempt: j.Attempt.Number(), Host: h.hostname, Worker: h.Worker.record(), Berth: h.Berth,
		Outcome: ended, Integrity: record.Unknown, Phases: []record.Phase{p}, Start: now, End: now,
		Error: &record.Error{Boundary: by, Phase: p.Name, Message: why.Error(), Retry: ended == record.Preempted},
	}
}

var _ trial.Attempt = (*store.Attempt)(nil)

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

// InstallSandboxd copies the program to a place that control folders can link
// to, and returns the path of the copy. If it fails, no run can start on this
// machine.
func InstallSandboxd(program string) (string, error) {
	dir, err := node.Dir()
	if err != nil {
		return "", err
	}
	installed, _, err := host.Install(filepath.Join(dir, "d"), program)
	if err != nil {
		return "", fmt.Errorf("install sandboxd in the runtime folder: %w: make room in %s, or set %s to your own short path on a local disk", err, dir, node.EnvDir)
	}
	return installed, nil
}
