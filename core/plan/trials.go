package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/store"
)

// identities computes the identity of each cell for each of its datasets.
func (m *maker) identities() {
	for _, c := range m.plan.Experiment.Cells {
		ids := make(map[string]json.RawMessage, len(c.Datasets))
		for i := range c.Datasets {
			ids[c.Datasets[i].Label] = c.Identity(&c.Datasets[i])
		}
		m.plan.identities = append(m.plan.identities, ids)
	}
}

// TrialID returns the SHA-256, in hex, of the canonical JSON (sorted keys, no
// spaces) of the task's name and digest, the identity of the cell, and the
// repetition: see cell.Canonical. It does not depend on paths, ports, addresses or
// times.
func TrialID(task, digest string, cell json.RawMessage, repetition int) string {
	return sum(map[string]any{
		"task":       map[string]string{"name": task, "digest": digest},
		"cell":       cell,
		"repetition": repetition,
	})
}

// sum returns the SHA-256, in hex, of v as JSON. Raw parts must be canonical.
func sum(v any) string {
	h := sha256.Sum256(cell.JSON(v))
	return hex.EncodeToString(h[:])
}

// maxTrials is the largest number of trials of a run: each takes a line of the
// manifest and some 500 bytes of memory.
const maxTrials = 1_000_000

// trials makes the trials, one repetition after another, so that a run that is
// stopped early has measured every cell about equally often.
func (m *maker) trials() {
	p := m.plan
	repeat := max(1, p.Experiment.Repeat)
	total := 0
	for i := range p.Experiment.Cells {
		for _, d := range p.Experiment.Cells[i].Datasets {
			total += repeat * len(m.datasets[d.Label])
		}
	}
	if total > maxTrials {
		m.problems.add(Problem{
			Severity: Error, Summary: fmt.Sprintf("%d trials are too many", total),
			Detail: fmt.Sprintf("%d cells on their tasks, %d times each; at most %d. Lower repeat, leave out values of the matrix, or split the experiment.",
				len(p.Experiment.Cells), repeat, maxTrials),
		})
		return
	}
	p.Trials = make([]Trial, 0, total)
	ids := make(map[string]int, total)
	dirs := make(map[string]bool, total)
	for rep := 1; rep <= repeat; rep++ {
		for place := range p.Tasks {
			for i := range p.Experiment.Cells {
				d := datasetOf(p.Experiment.Cells[i], p.Tasks[place].Dataset)
				if d == nil {
					continue
				}
				t := m.trial(i, d, place, rep)
				if before, ok := ids[t.ID]; ok {
					m.twice(&p.Trials[before], &t)
					continue
				}
				for n := 9; dirs[t.Dir] && n <= len(t.ID); n++ {
					t.Dir = store.TrialDir(t.Task, p.Experiment.Cells[i].Slug, rep, t.ID[:8]) + t.ID[8:n]
				}
				ids[t.ID], dirs[t.Dir] = len(p.Trials), true
				p.Trials = append(p.Trials, t)
			}
		}
	}
}

func datasetOf(c *experiment.Cell, label string) *experiment.Dataset {
	for i := range c.Datasets {
		if c.Datasets[i].Label == label {
			return &c.Datasets[i]
		}
	}
	return nil
}

func (m *maker) trial(cell int, d *experiment.Dataset, place, rep int) Trial {
	t, c := &m.plan.Tasks[place], m.plan.Experiment.Cells[cell]
	out := Trial{Place: place, Trial: store.Trial{Task: t.Name, Dataset: d.Label, Cell: cell, Repetition: rep}}
	identity := m.plan.identities[cell][d.Label]
	if t.Task != nil {
		out.TaskDigest, out.Labels = t.Task.Digest, t.Task.Labels
		out.ID = TrialID(t.Name, t.Task.Digest, identity, rep)
	} else {
		// It never runs, so its id only has to be unique.
		out.Invalid = FirstError(t.Problems)
		out.ID = sum([]any{"invalid", d.Label, t.Path, identity, c.Key, rep})
	}
	out.Dir = store.TrialDir(t.Name, c.Slug, rep, out.ID)
	return out
}

// twice reports two trials that are equal in everything that could change their
// result: running both would count one thing twice.
func (m *maker) twice(a, b *Trial) {
	p := Problem{Severity: Error, Summary: "trial is planned twice"}
	ca, cb := m.plan.Experiment.Cells[a.Cell].Key, m.plan.Experiment.Cells[b.Cell].Key
	if a.Cell != b.Cell {
		p.Cells = []string{ca, cb}
		p.Detail = "These cells differ in nothing that could change a result. Use the axis in an agent, model, environment or limit, or remove it; to run the same more often, raise repeat."
	} else {
		p.Tasks = []string{a.Task}
		p.Detail = fmt.Sprintf("The datasets %s hold the same task. Exclude it from one of them.", strings.Join([]string{a.Dataset, b.Dataset}, " and "))
	}
	m.problems.add(p)
}
