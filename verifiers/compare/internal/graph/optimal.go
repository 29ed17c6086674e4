package graph

import (
	"math"
	"slices"

	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
)

// Bounds of an optimal matching.
const (
	maxOptimal = 200     // nodes
	maxTries   = 100_000 // pairs of nodes that are tried to make the edges agree
)

// apart is the cost of a pair of different types. It is more than all data of a
// workflow can cost.
const apart = 1 << 40

// best pairs nodes with the least cost in all. If nodes can be paired without any
// cost in several ways, it returns one in which the edges agree, if there is any.
func best(c [][]int, want, got workflow, d *diff.List) []int {
	pairs := assign(c)
	for t, p := range pairs {
		if c[t][p] < 0 {
			pairs[t] = -1
		}
	}
	for t, p := range pairs {
		if p < 0 || c[t][p] > 0 {
			return pairs
		}
	}
	s := search{c: c, want: want, got: got, left: maxTries}
	if found := s.run(); found != nil {
		return found
	}
	if s.left == 0 {
		d.Add("no way to pair equal nodes so that the edges agree was found in %d tries", maxTries)
	}
	return pairs
}

// assign solves the assignment problem: it returns the column of each row of a
// square matrix with the least sum of costs, by the Hungarian method with
// potentials, in O(n³) (Kuhn 1955, Munkres 1957). A negative cost is a pair that
// must not be.
func assign(c [][]int) []int {
	n := len(c)
	a := assignment{
		c: c, rowCost: make([]int, n+1), columnCost: make([]int, n+1), row: make([]int, n+1), from: make([]int, n+1),
	}
	for i := 1; i <= n; i++ {
		a.add(i)
	}
	out := make([]int, n)
	for k := 1; k <= n; k++ {
		out[a.row[k]-1] = k - 1
	}
	return out
}

// assignment is an assignment of the first rows. Rows and columns are counted from
// 1; column 0 is where a new row begins.
type assignment struct {
	c                   [][]int
	rowCost, columnCost []int // potentials
	row                 []int // of each column; 0: it is free
	from                []int // of each column: the one before it on the path
}

// add assigns one more row, and other columns to some of the rows before it.
func (a *assignment) add(i int) {
	a.row[0] = i
	least := slices.Repeat([]int{math.MaxInt}, len(a.row))
	done := make([]bool, len(a.row))
	j := 0
	for a.row[j] != 0 {
		done[j] = true
		next := a.reach(j, least, done)
		delta := least[next]
		for k := range a.row {
			if done[k] {
				a.rowCost[a.row[k]] += delta
				a.columnCost[k] -= delta
			} else if least[k] < math.MaxInt {
				least[k] -= delta
			}
		}
		j = next
	}
	for j != 0 { // turn the path around
		a.row[j] = a.row[a.from[j]]
		j = a.from[j]
	}
}

// reach looks for shorter paths over column j, and returns the nearest column that
// is not done.
func (a *assignment) reach(j int, least []int, done []bool) (next int) {
	for k := 1; k < len(a.row); k++ {
		if done[k] {
			continue
		}
		cost := a.c[a.row[j]-1][k-1]
		if cost < 0 {
			cost = apart
		}
		if reduced := cost - a.rowCost[a.row[j]] - a.columnCost[k]; reduced < least[k] {
			least[k], a.from[k] = reduced, j
		}
		if next == 0 || least[k] < least[next] {
			next = k
		}
	}
	return next
}

// search looks for a pairing without cost in which all edges agree.
type search struct {
	c         [][]int
	want, got workflow
	left      int // tries
	order     []int
	fits      [][]int // of each expected node: predicted ones without cost and with as many edges
	pairs     []int
	used      []bool
}

// run returns the pairing; nil: there is none, or no tries are left.
func (s *search) run() []int {
	n := len(s.c)
	s.pairs, s.used, s.fits = slices.Repeat([]int{-1}, n), make([]bool, n), make([][]int, n)
	wantDegree, gotDegree := degrees(s.want, n), degrees(s.got, n)
	for t := range s.c {
		s.order = append(s.order, t)
		for p, cost := range s.c[t] {
			if cost == 0 && wantDegree[t] == gotDegree[p] {
				s.fits[t] = append(s.fits[t], p)
			}
		}
	}
	s.arrange()
	if !s.place(0) {
		return nil
	}
	return s.pairs
}

// degrees returns how many edges begin and end at each node.
func degrees(w workflow, n int) [][2]int {
	out := make([][2]int, n)
	for e, handles := range w.edges {
		out[e.source][0] += len(handles)
		out[e.target][1] += len(handles)
	}
	return out
}

// arrange orders the expected nodes: those that follow from others first, then
// those with few candidates.
func (s *search) arrange() {
	near := make([]int, len(s.order)) // edges to nodes that are arranged
	for i := range s.order {
		rest := s.order[i:]
		k := i
		for j := range rest {
			a, b := rest[j], s.order[k]
			if near[a] > near[b] || near[a] == near[b] && len(s.fits[a]) < len(s.fits[b]) {
				k = i + j
			}
		}
		s.order[i], s.order[k] = s.order[k], s.order[i]
		for e := range s.want.edges {
			if e.source == s.order[i] {
				near[e.target]++
			}
			if e.target == s.order[i] {
				near[e.source]++
			}
		}
	}
}

// place pairs the nodes from the i-th of the order on.
func (s *search) place(i int) bool {
	if i == len(s.order) {
		return true
	}
	t := s.order[i]
	for _, p := range s.fits[t] {
		if s.used[p] {
			continue
		}
		if s.left == 0 {
			return false
		}
		s.left--
		s.pairs[t], s.used[p] = p, true
		if s.agrees(s.order[:i+1], t) && s.place(i+1) {
			return true
		}
		s.pairs[t], s.used[p] = -1, false
	}
	return false
}

// agrees reports whether the edges between a node and those that are paired are
// the same on both sides.
func (s *search) agrees(paired []int, t int) bool {
	for _, o := range paired {
		for _, e := range []edge{{t, o}, {o, t}} {
			want, got := s.want.edges[e], s.got.edges[edge{s.pairs[e.source], s.pairs[e.target]}]
			if len(want) != len(got) {
				return false
			}
			if missing, extra := unmatched(want, got); len(missing)+len(extra) > 0 {
				return false
			}
		}
	}
	return true
}
