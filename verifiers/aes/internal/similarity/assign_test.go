package similarity

import (
	"math"
	"math/rand/v2"
	"testing"
)

// cheapest tries every assignment.
func cheapest(m matrix, row int, taken []bool, left int) float64 {
	if row == m.rows {
		return 0
	}
	best := math.Inf(1)
	if m.rows-row > left { // this row may stay without a column
		best = cheapest(m, row+1, taken, left)
	}
	for j := range m.columns {
		if !taken[j] {
			taken[j] = true
			best = min(best, m.costs[row*m.columns+j]+cheapest(m, row+1, taken, left-1))
			taken[j] = false
		}
	}
	return best
}

// cost returns the cost of an assignment, and fails if it is none.
func cost(t *testing.T, m matrix, of []int) (sum float64) {
	t.Helper()
	taken, n := map[int]bool{}, 0
	for i, j := range of {
		if j < 0 {
			continue
		}
		if taken[j] {
			t.Fatalf("column %d has two rows", j)
		}
		taken[j] = true
		n++
		sum += m.costs[i*m.columns+j]
	}
	if len(of) != m.rows || n != min(m.rows, m.columns) {
		t.Fatalf("%d of %d × %d are assigned", n, m.rows, m.columns)
	}
	return sum
}

func random(dice *rand.Rand, rows, columns int) matrix {
	m := matrix{rows, columns, make([]float64, rows*columns)}
	few := dice.IntN(3) // many equal costs, some that are far apart
	for i := range m.costs {
		switch few {
		case 0:
			m.costs[i] = float64(dice.IntN(4))
		case 1:
			m.costs[i] = dice.Float64()*2 - 1
		default:
			if m.costs[i] = dice.Float64()*2 - 1; dice.IntN(3) == 0 {
				m.costs[i] = 1e5
			}
		}
	}
	return m
}

// Small matrices have the cost of the best of all assignments.
func TestSmallMatrices(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		rows, columns := 1+dice.IntN(6), 1+dice.IntN(6)
		m := random(dice, rows, columns)
		want := cheapest(m, 0, make([]bool, columns), columns)
		if got := cost(t, m, solve(m)); math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
			t.Fatalf("%d × %d: %g, want %g: %v", rows, columns, got, want, m.costs)
		}
	}
	if got := solve(matrix{3, 0, nil}); len(got) != 3 || got[0] != -1 {
		t.Errorf("without columns: %v", got)
	}
	if got := solve(matrix{0, 3, nil}); len(got) != 0 {
		t.Errorf("without rows: %v", got)
	}
}

// Large matrices have dual prices that prove the assignment to be the best one: no
// pair costs less than its prices, and the pairs that are assigned cost as much.
func TestLargeMatrices(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(3, 4))
	for _, size := range [][2]int{{200, 200}, {100, 500}, {1, 300}, {300, 300}} {
		for range 3 {
			m := random(dice, size[0], size[1])
			s := newSolver(m)
			cost(t, m, s.ofRow)
			for i := range m.rows {
				for j := range m.columns {
					slack := m.costs[i*m.columns+j] - s.u[i] - s.v[j]
					if slack < -1e-6 || s.ofRow[i] == j && slack > 1e-6 || s.v[j] > 1e-6 || s.ofColumn[j] < 0 && s.v[j] != 0 {
						t.Fatalf("%v: pair %d, %d has the slack %g, its column the price %g", size, i, j, slack, s.v[j])
					}
				}
			}
		}
	}
}
