package numbers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/suggest"
)

// byReward groups by the names of verifiers' scores: a row is about one of them.
const byReward = "reward"

// byResult are the groups that a trial is in because of its result.
var byResult = []string{"outcome", "agent_end", "integrity"}

// None is the value of a trial that has none.
const None = "–"

// groupField is something that trials can be grouped by.
type groupField struct {
	name  string
	of    func(*Trial) []string // the values of a trial, at least one
	cells bool                  // it tells cells apart
}

// Groups are the names that trials can be grouped by, besides the axes of a run.
var Groups = []string{
	"cell", "run", "dataset", "task", "tag", "category", "difficulty", byReward, "integrity", "mode", "agent_end", "outcome", "agent", "model", "environment",
}

func one(of func(*Trial) string) func(*Trial) []string {
	return func(t *Trial) []string { return []string{cmp.Or(of(t), None)} }
}

// brief is a part of the accepted attempt's result.
func brief(of func(*store.Brief) string) func(*Trial) []string {
	return one(func(t *Trial) string {
		if acc := t.Accepted(); acc != nil {
			return of(acc.Result)
		}
		return ""
	})
}

func cellField(j *Joined) groupField {
	return groupField{name: "cell", of: one(func(t *Trial) string { return j.Cells[t.Cell].Name }), cells: true}
}

// groupFields finds what to group by.
func groupFields(j *Joined, by []string) ([]groupField, error) {
	axes := map[string]bool{}
	for i := range j.Runs {
		for c := range j.Runs[i].Manifest.Cells {
			for axis := range j.Runs[i].Manifest.Cells[c].Choices {
				axes[axis] = true
			}
		}
	}
	var fields []groupField
	for _, name := range by {
		name = strings.TrimSpace(name)
		f := groupField{name: name}
		if axis := strings.TrimPrefix(name, "cell."); axes[axis] {
			f.name, f.cells = axis, true
			f.of = one(func(t *Trial) string { return t.Of().Choices[axis] })
		} else if f.of, f.cells = groupOf(j, name); f.of == nil {
			known := append(slices.Sorted(maps.Keys(axes)), Groups...)
			if best := suggest.Word(name, known); best != "" {
				return nil, fmt.Errorf("--by: trials cannot be grouped by %q: did you mean %q?", name, best)
			}
			return nil, fmt.Errorf("--by: trials cannot be grouped by %q. Choose from: %s", name, strings.Join(slices.Compact(known), ", "))
		}
		if slices.ContainsFunc(fields, func(o groupField) bool { return o.name == f.name }) {
			return nil, fmt.Errorf("--by: %s is there twice", f.name)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// Values returns the values of a trial by one of Groups; nil for another name.
func (j *Joined) Values(name string) func(*Trial) []string {
	of, _ := groupOf(j, name)
	return of
}

// groupOf returns the values of a trial by one of Groups, and whether they tell
// cells apart; nil for another name.
func groupOf(j *Joined, name string) (of func(*Trial) []string, cells bool) {
	switch name {
	case "cell":
		return cellField(j).of, true
	case "run":
		return one(func(t *Trial) string { return t.Run.Name() }), false
	case "dataset":
		return one(func(t *Trial) string { return t.Dataset }), false
	case "task":
		return one(func(t *Trial) string { return t.TaskName }), false
	case "tag":
		return func(t *Trial) []string {
			if len(t.Tags) == 0 {
				return []string{None}
			}
			return t.Tags
		}, false
	case "category":
		return one(func(t *Trial) string { return t.Category }), false
	case "difficulty":
		return one(func(t *Trial) string { return t.Difficulty }), false
	case byReward:
		return rewards(j), false
	case "integrity":
		return brief(func(b *store.Brief) string { return string(b.Integrity) }), false
	case "mode":
		return brief(func(b *store.Brief) string { return b.Mode }), false
	case "agent_end":
		return brief(func(b *store.Brief) string { return string(b.AgentEnd) }), false
	case "outcome":
		return one(func(t *Trial) string { return string(t.Outcome()) }), false
	case "agent":
		return one(func(t *Trial) string { return t.Of().Agent }), true
	case "model":
		return one(func(t *Trial) string { return t.Of().Model }), true
	case "environment":
		return one(func(t *Trial) string { return t.Of().Environment }), true
	}
	return nil, false
}

// rewards returns what names the scores of a trial. A measured trial that ended in
// an error without scores has those that other trials of its task have, as the score
// that decides would be 0 as well; but none that is raw.
func rewards(j *Joined) func(*Trial) []string {
	raw, of := j.Raw(), map[string]map[string]bool{}
	task := func(t *Trial) string { return t.Dataset + "\x00" + t.TaskName }
	for i := range j.Trials {
		t := &j.Trials[i]
		for name := range rewardsOf(t) {
			at := task(t)
			if of[at] == nil {
				of[at] = map[string]bool{}
			}
			if !raw.Reward(name) {
				of[at][name] = true
			}
		}
	}
	return func(t *Trial) []string {
		names := slices.Sorted(maps.Keys(rewardsOf(t)))
		if len(names) == 0 && t.Measured() {
			names = slices.Sorted(maps.Keys(of[task(t)]))
		}
		if len(names) == 0 {
			return []string{None}
		}
		return names
	}
}

// rewardsOf returns the scores of a measured trial; nil: it has none.
func rewardsOf(t *Trial) map[string]float64 {
	if !t.Measured() {
		return nil
	}
	return t.Accepted().Result.Rewards
}

// compare sorts the values of a field: numbers and durations by their size, so
// that the rows of such an axis are a curve, and the rest as text.
func (f *groupField) compare(a, b string) int {
	x, isX := size(a)
	y, isY := size(b)
	switch {
	case isX && isY:
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	case isX:
		return -1
	case isY:
		return 1
	case a == None || b == None: // last
		return cmp.Compare(boolean(a == None), boolean(b == None))
	}
	return cmp.Compare(a, b)
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// size reads a number or a duration.
func size(s string) (float64, bool) {
	if x, err := strconv.ParseFloat(s, 64); err == nil && finite(x) {
		return x, true
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.Seconds(), true
	}
	return 0, false
}
