package page

import (
	"maps"
	"math"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
)

// group has the numbers of a part of the trials, for each cell.
type group struct {
	Kind, Name string
	Tasks      int       // that were measured, of the cell that has most of them
	Raw        bool      // it is a score with values outside 0 to 1
	Rates      []float64 // by cell; NaN: no measured trial
}

// kinds are what the trials of each cell are grouped by, as in show --by.
var kinds = []string{"dataset", "category", "difficulty", "tag", "reward", "mode", "integrity", "agent_end"}

// groups returns the numbers by each of the kinds. A kind with one group says
// nothing.
func (m *Report) groups() (all []*group, err error) {
	cells := map[string]int{}
	for i, c := range m.Cells {
		cells[c.Name] = i
	}
	for _, kind := range kinds {
		t, err := numbers.Table(m.joined, &numbers.Wanted{By: []string{"cell", kind}, Force: true})
		if err != nil {
			return nil, err
		}
		groups := map[string]*group{}
		for i := range t.Rows {
			r := &t.Rows[i]
			name := r.Values[1]
			if name == numbers.None {
				continue
			}
			if groups[name] == nil {
				groups[name] = &group{Kind: kind, Name: name, Rates: slices.Repeat([]float64{math.NaN()}, len(m.Cells))}
			}
			g := groups[name]
			g.Tasks, g.Raw = max(g.Tasks, r.Tasks), g.Raw || r.Raw
			if r.Mean != nil {
				g.Rates[cells[r.Values[0]]] = *r.Mean
			}
		}
		if len(groups) < 2 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			all = append(all, groups[name])
		}
	}
	return all, nil
}
