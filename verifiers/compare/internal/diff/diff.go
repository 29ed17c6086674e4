// Package diff collects what differs between a ground truth and a prediction, as
// sentences for people. It keeps a few and counts all, so that a prediction with
// a million mistakes gives a short text. It does not know what is compared.
package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/output"
)

// Bounds of a text.
const (
	shown   = 8   // differences
	longest = 300 // bytes of one
)

// List holds differences. The zero value is empty: the prediction is right.
type List struct {
	first []string
	total int
}

// Add adds one difference.
func (l *List) Add(format string, a ...any) {
	l.total++
	if len(l.first) < shown {
		l.first = append(l.first, output.First(fmt.Sprintf(format, a...), longest))
	}
}

// Append adds the differences of another list.
func (l *List) Append(other List) {
	l.total += other.total
	l.first = append(l.first, other.first[:min(len(other.first), shown-len(l.first))]...)
}

// Empty reports whether nothing differs.
func (l *List) Empty() bool { return l.total == 0 }

// String returns the first differences, and how many there are.
func (l *List) String() string {
	switch l.total {
	case 0:
		return "no difference"
	case 1:
		return "1 difference: " + l.first[0]
	}
	text := fmt.Sprintf("%d differences: %s", l.total, strings.Join(l.first, "; "))
	if more := l.total - len(l.first); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// First returns the first difference; empty: there is none.
func (l *List) First() string {
	if len(l.first) == 0 {
		return ""
	}
	return l.first[0]
}

// Pairs pairs things by what each pair costs, then by the order of the first ones, then
// by that of the second ones. Below 0 they cannot be a pair. It returns the second
// thing of each first one, or -1.
func Pairs(costs [][]int) []int {
	type pair struct{ cost, t, p int }
	var all []pair
	pairs, used := make([]int, len(costs)), map[int]bool{}
	for t := range costs {
		pairs[t] = -1
		for p, cost := range costs[t] {
			if cost >= 0 {
				all = append(all, pair{cost, t, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Or(a.cost-b.cost, a.t-b.t, a.p-b.p) })
	for _, x := range all {
		if pairs[x.t] < 0 && !used[x.p] {
			pairs[x.t], used[x.p] = x.p, true
		}
	}
	return pairs
}
