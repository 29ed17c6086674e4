package plan

import "slices"

// problems collects problems, and merges equal problems of several tasks or
// cells.
type problems struct {
	list []Problem
	seen map[problemKey]int
}

type problemKey struct {
	severity                 Severity
	summary, detail, dataset string
}

func (ps *problems) add(p Problem) {
	key := problemKey{p.Severity, p.Summary, p.Detail, p.Dataset}
	i, ok := ps.seen[key]
	if !ok {
		if ps.seen == nil {
			ps.seen = map[problemKey]int{}
		}
		ps.seen[key] = len(ps.list)
		ps.list = append(ps.list, p)
		return
	}
	old := &ps.list[i]
	old.Tasks = union(old.Tasks, p.Tasks)
	old.Cells = union(old.Cells, p.Cells)
}

func union[T comparable](a, b []T) []T {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// into adds the problems to the plan, errors before warnings.
func (ps *problems) into(p *Plan) {
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return rank(a.Severity) - rank(b.Severity)
	})
	p.Problems = append(p.Problems, ps.list...)
}

func rank(s Severity) int {
	if s == Error {
		return 0
	}
	return 1
}
