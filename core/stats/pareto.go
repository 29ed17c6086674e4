package stats

import "slices"

// Point is a cell with its success rate and its cost.
type Point struct {
	Name       string
	Rate, Cost float64
}

// Pareto returns the points that no other one beats: another would have at least
// the same rate at no more cost, and be better in one of them. By cost, ascending.
func Pareto(points []Point) (front []Point) {
	for _, p := range points {
		beaten := slices.ContainsFunc(points, func(o Point) bool {
			return o.Rate >= p.Rate && o.Cost <= p.Cost && (o.Rate > p.Rate || o.Cost < p.Cost)
		})
		if !beaten {
			front = append(front, p)
		}
	}
	slices.SortStableFunc(front, func(a, b Point) int {
		switch {
		case a.Cost < b.Cost:
			return -1
		case a.Cost > b.Cost:
			return 1
		}
		return 0
	})
	return front
}
