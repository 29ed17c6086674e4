package run

import (
	"slices"

	"github.com/berth-eval/berth/core/plan"
)

// lane has the trials of one cell that have not begun, in the order of the plan.
type lane struct {
	cell  int
	items []item
	// planned counts the trials of the cell, and begun those that have an outcome
	// or are running.
	planned, begun int
}

// lanes are the trials that still have to run, by cell.
type lanes struct {
	all  []*lane // by cell
	left int     // trials in all of them
}

// newLanes sorts trials by cell. planned are all trials of the plan that can
// run; those that are not among the items have an outcome.
func newLanes(items []item, planned []*plan.Trial) *lanes {
	l := &lanes{left: len(items)}
	for _, t := range planned {
		of := l.of(t)
		of.planned++
		of.begun++
	}
	for _, it := range items {
		of := l.of(it.trial)
		of.items = append(of.items, it)
		of.begun--
	}
	return l
}

func (l *lanes) of(t *plan.Trial) *lane {
	for len(l.all) <= t.Cell {
		l.all = append(l.all, &lane{cell: len(l.all)})
	}
	return l.all[t.Cell]
}

// behind reports whether less of a cell has begun than of another one.
func (a *lane) behind(b *lane) bool {
	return a.begun*b.planned < b.begun*a.planned
}

// next returns the cell of which the smallest part has begun, the first of those
// with equal parts, without the cells to skip; nil if there is none.
func (l *lanes) next(skip map[*lane]bool) (next *lane) {
	for _, a := range l.all {
		if len(a.items) > 0 && !skip[a] && (next == nil || a.behind(next)) {
			next = a
		}
	}
	return next
}

// take removes the first trial of a cell.
func (l *lanes) take(a *lane) item {
	it := a.items[0]
	a.items = a.items[1:]
	a.begun++
	l.left--
	return it
}

// back puts a trial that has begun before at the end of its cell.
func (l *lanes) back(it item) {
	of := l.of(it.trial)
	of.items = append(of.items, it)
	of.begun--
	l.left++
}

// drop removes trials.
func (l *lanes) drop(gone func(item) bool) {
	for _, a := range l.all {
		l.left -= len(a.items)
		a.items = slices.DeleteFunc(a.items, gone)
		l.left += len(a.items)
	}
}
