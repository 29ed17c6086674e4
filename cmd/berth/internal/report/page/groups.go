package page

import (
	"maps"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// group has the numbers of a part of the trials, for each cell.
type group struct {
	Kind, Name string
	Tasks      int
	Raw        bool      // it is a score with values outside 0 to 1
	Rates      []float64 // by cell; NaN: no measured trial

	counts []float64
	tasks  map[string]bool
}

// byReward groups by the scores of verifiers: a group is about one of them.
const byReward = "reward"

// kinds are what the trials of each cell are grouped by, as in show --by.
var kinds = []string{"dataset", "category", "difficulty", "tag", byReward, "mode", "integrity", "agent_end"}

// groups returns the numbers by each of the kinds. A kind with one group says
// nothing. raw are the scores that are not fractions.
func (m *model) groups(raw *numbers.Raw) (all []*group) {
	for _, kind := range kinds {
		of, groups := m.joined.Values(kind), map[string]*group{}
		for i := range m.joined.Trials {
			t := &m.joined.Trials[i]
			for _, name := range of(t) {
				if name == numbers.None {
					continue
				}
				if groups[name] == nil {
					groups[name] = &group{
						Kind: kind, Name: name, Raw: raw.Reward(name) && kind == byReward || m.Raw && kind != byReward,
						Rates: make([]float64, len(m.Cells)), counts: make([]float64, len(m.Cells)), tasks: map[string]bool{},
					}
				}
				groups[name].add(t)
			}
		}
		if len(groups) < 2 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			g := groups[name]
			g.Tasks = len(g.tasks)
			for c := range g.Rates {
				g.Rates[c] /= g.counts[c]
			}
			all = append(all, g)
		}
	}
	return all
}

// add counts a trial. Until all are counted, Rates are sums.
func (g *group) add(t *numbers.Trial) {
	g.tasks[t.TaskName] = true
	a, measured := numbers.Attempt(t.TrialState, t.TaskName)
	if !measured {
		return
	}
	if g.Kind == byReward {
		a.Score = t.Accepted().Result.Rewards[g.Name]
	}
	g.Rates[t.Cell] += a.Score
	g.counts[t.Cell]++
}

// axisRow has the numbers of the trials with one value on an axis.
type axisRow struct {
	Axis, Value string
	output.TableRow
}

// alongAxes returns the numbers by each axis of the matrix. If there is one axis,
// they are those of the cells.
func (m *model) alongAxes() (all []axisRow, err error) {
	names := m.axisNames()
	if len(names) < 2 {
		return nil, nil
	}
	for _, name := range names {
		t, err := numbers.Table(m.joined, &numbers.Wanted{By: []string{name}, Rules: m.Rules, Force: true})
		if err != nil {
			return nil, err
		}
		if len(t.Rows) < 2 {
			continue
		}
		for _, r := range t.Rows {
			all = append(all, axisRow{name, r.Values[0], r})
		}
	}
	return all, nil
}

// axisNames returns the names of the axes of the matrix, sorted.
func (m *model) axisNames() []string {
	names := map[string]bool{}
	for _, c := range m.Cells {
		for name := range c.Choices {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
