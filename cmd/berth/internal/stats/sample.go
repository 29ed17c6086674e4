// Package stats computes the numbers of a table from measured attempts: rates
// with their spread, intervals, and comparisons. All functions are pure: equal
// arguments, including seeds, give equal results. Rates and scores are fractions,
// not percentages.
//
// It must not know how attempts are stored or how numbers are printed.
package stats

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Attempt is one measured attempt at a task.
type Attempt struct {
	Task string
	// Group is what the task is counted under where groups weigh equally, such
	// as its category. All attempts at a task have the same one.
	Group      string
	Repetition int
	Score      float64 // any finite number; usually from 0 to 1
	Full       bool    // it has the full reward
}

// Sample holds the measured attempts of one cell, or of a part of it. It is
// safe for concurrent use.
type Sample struct {
	tasks []taskScores // sorted by name
	n     int          // attempts
}

// taskScores are the attempts at one task, by repetition.
type taskScores struct {
	name, group string
	repetitions []int
	scores      []float64
	full        int
	sum         float64
}

func (t *taskScores) mean() float64 { return t.sum / float64(len(t.scores)) }

// New makes a sample. Fails if there is no attempt, if a score is not finite, if
// a task has the same repetition twice, or if a task has two groups.
func New(attempts []Attempt) (*Sample, error) {
	if len(attempts) == 0 {
		return nil, fmt.Errorf("there are no measured attempts")
	}
	attempts = slices.Clone(attempts)
	slices.SortFunc(attempts, func(a, b Attempt) int {
		return cmp.Or(strings.Compare(a.Task, b.Task), cmp.Compare(a.Repetition, b.Repetition))
	})
	s := &Sample{n: len(attempts)}
	for i := range attempts {
		a := &attempts[i]
		if math.IsNaN(a.Score) || math.IsInf(a.Score, 0) {
			return nil, fmt.Errorf("task %q, repetition %d: the score %g is not a finite number", a.Task, a.Repetition, a.Score)
		}
		if i == 0 || a.Task != attempts[i-1].Task {
			s.tasks = append(s.tasks, taskScores{name: a.Task, group: a.Group})
		}
		t := &s.tasks[len(s.tasks)-1]
		switch {
		case t.group != a.Group:
			return nil, fmt.Errorf("task %q is in two groups, %q and %q", a.Task, t.group, a.Group)
		case len(t.repetitions) > 0 && t.repetitions[len(t.repetitions)-1] == a.Repetition: // they are sorted
			return nil, fmt.Errorf("task %q has repetition %d twice", a.Task, a.Repetition)
		}
		t.repetitions = append(t.repetitions, a.Repetition)
		t.scores = append(t.scores, a.Score)
		t.sum += a.Score
		if a.Full {
			t.full++
		}
	}
	return s, nil
}

// Tasks returns the number of tasks.
func (s *Sample) Tasks() int { return len(s.tasks) }

// Repetitions returns the smallest and the largest number of attempts at a task.
func (s *Sample) Repetitions() (least, most int) {
	least = math.MaxInt
	for i := range s.tasks {
		least, most = min(least, len(s.tasks[i].scores)), max(most, len(s.tasks[i].scores))
	}
	return least, most
}

// once reports whether each task was attempted once, with score 0 or 1.
func (s *Sample) once() bool {
	for i := range s.tasks {
		if t := &s.tasks[i]; len(t.scores) != 1 || t.scores[0] != 0 && t.scores[0] != 1 {
			return false
		}
	}
	return true
}

// fractions reports whether all scores are from 0 to 1.
func (s *Sample) fractions() bool {
	for i := range s.tasks {
		if slices.Min(s.tasks[i].scores) < 0 || slices.Max(s.tasks[i].scores) > 1 {
			return false
		}
	}
	return true
}

// Only returns the sample of the named tasks; nil if it has none of them.
func (s *Sample) Only(tasks map[string]bool) *Sample {
	only := &Sample{}
	for i := range s.tasks {
		if tasks[s.tasks[i].name] {
			only.tasks = append(only.tasks, s.tasks[i])
			only.n += len(s.tasks[i].scores)
		}
	}
	if only.n == 0 {
		return nil
	}
	return only
}

// groups returns the sample of each group, sorted by the name of the group.
func (s *Sample) groups() (of []*Sample) {
	by := map[string]*Sample{}
	for i := range s.tasks {
		g := by[s.tasks[i].group]
		if g == nil {
			g = &Sample{}
			by[s.tasks[i].group] = g
		}
		g.tasks = append(g.tasks, s.tasks[i])
		g.n += len(s.tasks[i].scores)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		of = append(of, by[name])
	}
	return of
}
