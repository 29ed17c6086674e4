package similarity

import "math"

// matrix has rows × columns finite costs, row after row.
type matrix struct {
	rows, columns int
	costs         []float64
}

// solve gives each row its own column so that the sum of the costs is least. It
// returns the column of each row; below 0 for rows that get none, because
// there are more rows than columns. It takes O(n²·m) time for the smaller side n and
// the larger one m.
//
// It is the algorithm of shortest augmenting paths (Crouse, "On implementing 2D
// rectangular assignment algorithms", IEEE TAES 52(4), 2016), which scipy has, too,
// after a reduction of columns in the way of Jonker and Volgenant: most rows get
// their column by it.
func solve(m matrix) []int {
	if m.rows <= m.columns {
		return newSolver(m).ofRow
	}
	flipped := matrix{m.columns, m.rows, make([]float64, len(m.costs))}
	for i := range m.rows {
		for j := range m.columns {
			flipped.costs[j*m.rows+i] = m.costs[i*m.columns+j]
		}
	}
	of := make([]int, m.rows)
	for i := range of {
		of[i] = -1
	}
	for j, i := range newSolver(flipped).ofRow {
		of[i] = j
	}
	return of
}

// solver is the state for a matrix with at least as many columns as rows. u and v
// are the dual prices: u[i] + v[j] is at most the cost, and equal to it for
// assigned pairs; v of a column without a row is 0.
type solver struct {
	m        matrix
	u, v     []float64
	ofRow    []int // column of a row; -1: none
	ofColumn []int

	// Of one search.
	dist []float64 // of a column, from the free row
	from []int     // row before a column
	left []int     // columns that are not reached
	done []int     // columns that are
}

func newSolver(m matrix) *solver {
	n := m.columns
	s := &solver{
		m: m, u: make([]float64, m.rows), v: make([]float64, n), ofRow: make([]int, m.rows), ofColumn: make([]int, n),
		dist: make([]float64, n), from: make([]int, n), left: make([]int, n), done: make([]int, 0, n),
	}
	for j := range s.ofColumn {
		s.ofColumn[j] = -1
	}
	s.reduce()
	for i, j := range s.ofRow {
		if j < 0 {
			s.augment(i)
		}
	}
	return s
}

// reduce gives rows their cheapest column, while it is free.
func (s *solver) reduce() {
	n := s.m.columns
	for i := range s.m.rows {
		row := s.m.costs[i*n : i*n+n]
		best, least := -1, math.Inf(1)
		for j, c := range row {
			if c < least {
				best, least = j, c
			}
		}
		s.u[i], s.ofRow[i] = least, -1
		if s.ofColumn[best] < 0 {
			s.ofRow[i], s.ofColumn[best] = best, i
		}
	}
}

// augment finds the shortest path from a free row to a free column, and exchanges
// the pairs on it.
func (s *solver) augment(free int) {
	n := s.m.columns
	s.left, s.done = s.left[:n], s.done[:0]
	for j := range s.left {
		s.left[j], s.dist[j] = j, math.Inf(1)
	}
	row, least, sink := free, 0.0, -1
	for sink < 0 {
		costs, u := s.m.costs[row*n:row*n+n], s.u[row]
		nearest, at := math.Inf(1), -1
		for k, j := range s.left {
			d := s.dist[j]
			if r := least + costs[j] - u - s.v[j]; r < d {
				d = r
				s.dist[j], s.from[j] = r, row
			}
			if d < nearest || d == nearest && s.ofColumn[j] < 0 && s.ofColumn[s.left[at]] >= 0 {
				nearest, at = d, k
			}
		}
		least = nearest
		j := s.left[at]
		s.left[at] = s.left[len(s.left)-1]
		s.left = s.left[:len(s.left)-1]
		s.done = append(s.done, j)
		if s.ofColumn[j] < 0 {
			sink = j
		} else {
			row = s.ofColumn[j]
		}
	}
	s.u[free] += least
	for _, j := range s.done {
		if j != sink {
			s.u[s.ofColumn[j]] += least - s.dist[j]
		}
		s.v[j] -= least - s.dist[j]
	}
	for j := sink; ; {
		i := s.from[j]
		s.ofColumn[j] = i
		s.ofRow[i], j = j, s.ofRow[i]
		if i == free {
			return
		}
	}
}
