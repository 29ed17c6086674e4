package run

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/core/trial/feasible"
)

// Demand is what the attempts of a trial take up of the run's limits. The zero
// value counts only for the limits of the whole run.
type Demand struct {
	Environment, Agent string   // labels of their blocks
	Models             []string // labels of the agent's models
	// MemoryMiB is what the sandboxes of an attempt may use; 0: the task has no
	// limit.
	MemoryMiB int64
}

// outside is the part of an attempt that has not begun or has ended.
const outside trial.Part = 0

// places counts the attempts that are in progress by what they are doing, and
// says which may continue. It is safe for concurrent use.
type places struct {
	mu     sync.Mutex
	run    *tally
	blocks map[string]*tally // by "agent NAME" and so on
	memory int64             // MiB that the attempts may ask for; 0: no limit
	asked  int64             // MiB that they ask for
	queue  []*holder         // attempts that wait for their next part, first come first served
	freed  chan struct{}     // gets a value when a place was given up
}

// tally counts the attempts that one set of limits is for.
type tally struct {
	limits experiment.Places
	count  [3]int // in flight, building, verifying
}

// holder is one attempt. It is in flight from its start to its end, also while it
// waits for its next part.
type holder struct {
	p       *places
	tallies []*tally
	memory  int64
	part    trial.Part
	next    trial.Part // what it waits for
	ok      chan struct{}
}

func newPlaces(l experiment.RunLimits, freeMiB int64) *places {
	p := &places{run: &tally{limits: l.Places}, blocks: map[string]*tally{}, memory: freeMiB, freed: make(chan struct{}, 1)}
	p.limit(l)
	if l.MemoryMiB != nil {
		p.memory = *l.MemoryMiB
	}
	for kind, of := range l.Blocks() {
		for label, limits := range of {
			p.blocks[kind+" "+label] = &tally{limits: limits}
		}
	}
	return p
}

// limit sets how many attempts may be in flight. Those that are continue.
func (p *places) limit(l experiment.RunLimits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.limits.InFlight = new(inFlight(l))
	p.grant()
}

// holder returns an attempt that has not begun.
func (p *places) holder(d Demand) *holder {
	h := &holder{p: p, tallies: []*tally{p.run}, memory: d.MemoryMiB}
	names := []string{"environment " + d.Environment, "agent " + d.Agent}
	for _, m := range d.Models {
		names = append(names, "model "+m)
	}
	for _, name := range names {
		if t := p.blocks[name]; t != nil {
			h.tallies = append(h.tallies, t)
		}
	}
	return h
}

// counts says for which limits an attempt counts in a part.
func counts(part trial.Part) [3]bool {
	return [3]bool{
		part == trial.Building || part == trial.Working || part == trial.Verifying,
		part == trial.Building,
		part == trial.Verifying,
	}
}

// room reports whether an attempt may continue to a part. An attempt that does so
// must not raise a count above its limit.
func (h *holder) room(to trial.Part) bool {
	before, after := counts(h.part), counts(to)
	for _, t := range h.tallies {
		for i, limit := range []*int{t.limits.InFlight, t.limits.Building, t.limits.Verifying} {
			if limit != nil && after[i] && !before[i] && t.count[i] >= *limit {
				return false
			}
		}
	}
	return true
}

func (h *holder) move(to trial.Part) {
	before, after := counts(h.part), counts(to)
	for _, t := range h.tallies {
		for i := range t.count {
			if before[i] {
				t.count[i]--
			}
			if after[i] {
				t.count[i]++
			}
		}
	}
	h.part = to
}

// refusal says why an attempt cannot start.
type refusal int

const (
	admitted refusal = iota
	full             // a limit of its environment, agent or model is reached
	noMemory         // others have the memory that it asks for
	allFull          // no attempt can start
)

// start begins an attempt if its limits allow that. An attempt that asks for
// more memory than there is runs when no other one has any.
func (h *holder) start() refusal {
	p := h.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !(&holder{p: p, tallies: []*tally{p.run}}).room(trial.Building):
		return allFull
	case !h.room(trial.Building):
		return full
	case h.memory > 0 && p.memory > 0 && p.asked > 0 && p.asked+h.memory > p.memory:
		return noMemory
	}
	p.asked += h.memory
	h.move(trial.Building)
	return admitted
}

// take begins an attempt whatever its limits are: it runs already.
func (h *holder) take() {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.p.asked += h.memory
	h.move(trial.Working)
}

// memoryLeft returns the MiB that all attempts may ask for, and those that none
// asks for now.
func (p *places) memoryLeft() (all, left int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory, max(0, p.memory-p.asked)
}

// Try implements [trial.Places].
func (h *holder) Try(part trial.Part) bool {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if !h.room(part) {
		return false
	}
	h.move(part)
	h.p.grant()
	return true
}

// Enter implements [trial.Places].
func (h *holder) Enter(ctx context.Context, part trial.Part) error {
	if h.Try(part) {
		return nil
	}
	p := h.p
	p.mu.Lock()
	h.next, h.ok = part, make(chan struct{})
	if h.part == trial.Building || h.part == trial.Verifying {
		h.move(trial.Working) // while it waits it is only in flight
	}
	p.queue = append(p.queue, h)
	p.grant()
	p.mu.Unlock()
	select {
	case <-h.ok:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leave(h)
		return context.Cause(ctx)
	}
}

// leave ends the wait of an attempt. The caller holds the lock.
func (p *places) leave(h *holder) {
	p.queue = slices.DeleteFunc(p.queue, func(w *holder) bool { return w == h })
}

// grant lets attempts continue for which there is a place now. The caller holds the
// lock.
func (p *places) grant() {
	p.queue = slices.DeleteFunc(p.queue, func(h *holder) bool {
		if !h.room(h.next) {
			return false
		}
		h.move(h.next)
		close(h.ok)
		return true
	})
	select {
	case p.freed <- struct{}{}:
	default: // the scheduler looks again anyway
	}
}

// end gives up everything that an attempt has.
func (h *holder) end() {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.p.leave(h)
	h.move(outside)
	h.p.asked -= h.memory
	h.p.grant()
}

var _ trial.Places = (*holder)(nil)

// freeMiB returns how much memory attempts may use, in MiB: what no process of this
// machine uses, or less if the job of this process may have less. 0: not known.
func (s *Spec) freeMiB() int64 {
	free := availableIn("/proc/meminfo")
	if s.Memory == nil {
		return free
	}
	if job, limited := s.Memory.FreeMiB(); limited && (free == 0 || job < free) {
		return max(job, 1)
	}
	return free
}

func availableIn(file string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kib int64
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err == nil {
				return kib >> 10
			}
		}
	}
	return 0
}

// Demands returns a function that returns what the attempts of a trial take up. It
// is not safe for concurrent use.
func Demands(p *plan.Plan) func(*plan.Trial) Demand {
	type key struct {
		cell, place int
		dataset     string
	}
	known := map[key]Demand{}
	return func(t *plan.Trial) Demand {
		k := key{t.Cell, t.Place, t.Dataset}
		if d, ok := known[k]; ok {
			return d
		}
		c := p.Experiment.Cells[t.Cell]
		d := Demand{Environment: c.Environment.Label, Agent: c.Agent.Label}
		for _, m := range c.Agent.Models { // it may know one model by several names
			if !slices.Contains(d.Models, m.Label) {
				d.Models = append(d.Models, m.Label)
			}
		}
		for i := range c.Datasets {
			if task := p.Tasks[t.Place].Task; task != nil && c.Datasets[i].Label == t.Dataset {
				d.MemoryMiB = feasible.MemoryMiB(task, c.On(&c.Datasets[i]))
			}
		}
		known[k] = d
		return d
	}
}
