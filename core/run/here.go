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
	"github.com/berth-eval/berth/core/models"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/plugins/task"
)

// Here carries out attempts on this machine.
type Here struct {
	o     HereOptions
	host  string
	cells []map[string]cell.Cell // by cell, then by dataset
	count atomic.Int64
	guard *guard
	drift func(*record.Result) error
}

// HereOptions are what attempts on this machine need.
type HereOptions struct {
	Plan    *plan.Plan
	Run     string // id of the run, the owner of what is made
	Berth   string // version of this program
	Plugins trial.Plugins
	Gateway models.Gateway // nil: there are no models
	// Runtime is a node-local folder for this process alone, perhaps in memory,
	// Disk one on a disk if Runtime is not, and Sandboxd the program as it was
	// installed beside Runtime.
	Runtime   string
	Disk      string
	Sandboxd  string
	LookupEnv func(string) (string, bool)
	// Before is what is known of a run that is resumed; nil: nothing. AcceptDrift
	// writes down an image or bundle that is not that of before; nil refuses it.
	Before      *store.Index
	AcceptDrift func(drift string) error
	// Formats and Options read a task again whose files look changed.
	Formats []task.Format
	Options task.Options
}

// NewHere reads the secrets of every cell. Fails when one is missing.
func NewHere(o HereOptions) (*Here, error) {
	h := &Here{o: o, guard: &guard{again: reader(o.Formats, o.Options)}, drift: compare(o.Before, o.AcceptDrift)}
	h.host, _ = os.Hostname() //nolint:errcheck // an unknown host stays unnamed in the record
	for _, c := range o.Plan.Experiment.Cells {
		byDataset := map[string]cell.Cell{}
		for i := range c.Datasets {
			revealed, err := plan.Revealed(c, &c.Datasets[i])
			if err != nil {
				return nil, err
			}
			byDataset[c.Datasets[i].Label] = revealed
		}
		h.cells = append(h.cells, byDataset)
	}
	return h, nil
}

// Attempt implements Executor.
func (h *Here) Attempt(ctx context.Context, j Job) (record.Result, error) {
	t := &h.o.Plan.Tasks[j.Trial.Place]
	if t.Task == nil {
		return record.Result{}, fmt.Errorf("task %s is invalid and cannot be run", t.Name)
	}
	if err := h.guard.check(ctx, j.Trial.Place, t); err != nil {
		return h.notTheTask(j, t, err)
	}
	number := strconv.FormatInt(h.count.Add(1), 36)
	runtime, disk := filepath.Join(h.o.Runtime, number), ""
	if h.o.Disk != "" {
		disk = filepath.Join(h.o.Disk, number)
	}
	return trial.Run(ctx, trial.Input{
		Run: h.o.Run, Trial: j.Trial.ID, Repetition: j.Trial.Repetition, Attempt: j.Attempt.Number(),
		Host: h.host, Berth: h.o.Berth, Task: t.Task, Cell: h.cells[j.Trial.Cell][j.Trial.Dataset],
		Record: j.Attempt, Runtime: runtime, Disk: disk, Sandboxd: h.o.Sandboxd, Plugins: h.o.Plugins, Checker: h.o.Plan.Checker, Gateway: h.o.Gateway,
		LookupEnv: h.o.LookupEnv, Live: j.Live, Drift: h.drift,
	})
}

// notTheTask is the attempt at a task that is not the planned one any more.
func (h *Here) notTheTask(j Job, t *plan.Task, why error) (record.Result, error) {
	now := time.Now().UTC()
	p := record.Phase{Name: record.PhasePrepare, Who: record.ByTask, Start: now, End: now, Error: why.Error()}
	r := record.Result{
		Version: 1, Run: h.o.Run, Trial: j.Trial.ID, Task: t.Name, TaskDigest: t.Task.Digest, Repetition: j.Trial.Repetition,
		Cell: h.cells[j.Trial.Cell][j.Trial.Dataset].Choices, Attempt: j.Attempt.Number(), Host: h.host, Berth: h.o.Berth,
		Outcome: record.TaskInvalid, Integrity: record.Unknown, Phases: []record.Phase{p}, Start: now, End: now,
		Error: &record.Error{Boundary: record.ByTask, Phase: p.Name, Message: why.Error()},
	}
	return r, j.Attempt.Publish(r)
}

var _ trial.Attempt = (*store.Attempt)(nil)
