// Package requirement reads the rules of --require about the result of a run, such
// as "agent=oracle: pass_rate >= 0.9", and checks them.
package requirement

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/suggest"
)

// Rule is a rule about the result of a run, for scripts: every cell that
// it names must meet it.
type Rule struct {
	text   string
	cells  [][2]string // axis and value; none: all cells
	metric string
	op     string
	// value is a number, or the metric in of.
	value float64
	of    string
}

var pattern = regexp.MustCompile(`^(?:([^:]*):)?\s*([a-z_]+)\s*(>=|<=|==|=|>|<)\s*([a-z_]+|[-+0-9.eE]+)\s*$`)

// metrics are the metrics that rules may use, by name.
var metrics = map[string]func(r *summary.Row) *float64{
	"pass_rate":             func(r *summary.Row) *float64 { return r.OfPlanned },
	"pass_rate_of_planned":  func(r *summary.Row) *float64 { return r.OfPlanned },
	"pass_rate_of_measured": func(r *summary.Row) *float64 { return r.OfMeasured },
	"mean_score":            func(r *summary.Row) *float64 { return r.Score },
	"planned":               func(r *summary.Row) *float64 { return number(r.Planned) },
	"measured":              func(r *summary.Row) *float64 { return number(r.Measured) },
	"passed":                func(r *summary.Row) *float64 { return number(r.Passed) },
	"passed_checked":        func(r *summary.Row) *float64 { return number(r.PassedChecked) },
	"failed":                func(r *summary.Row) *float64 { return number(r.Outcomes[record.Failed]) },
	"exposed":               func(r *summary.Row) *float64 { return number(r.Exposed) },
	"unexpected":            func(r *summary.Row) *float64 { return number(len(r.Unexpected)) },
	"unmeasured":            func(r *summary.Row) *float64 { return number(r.Planned - r.Measured) },
}

// metricNames are those of metrics, in order.
var metricNames = slices.Sorted(maps.Keys(metrics))

func number(n int) *float64 {
	v := float64(n)
	return &v
}

// Parse reads a rule: "[axis=value, …:] metric op value", where op
// is one of >= <= = > <, and value a number or another metric.
func Parse(text string) (Rule, error) {
	bad := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf(`requirement %q: %s (example: "agent=oracle: pass_rate >= 0.9")`, text, fmt.Sprintf(format, args...))
	}
	m := pattern.FindStringSubmatch(text)
	if m == nil {
		return bad("expected METRIC OP VALUE")
	}
	r := Rule{text: strings.TrimSpace(text), metric: m[2], op: m[3]}
	if metrics[r.metric] == nil {
		return bad("unknown metric %q%s", r.metric, suggest.After(r.metric, metricNames))
	}
	var err error
	if metrics[m[4]] != nil {
		r.of = m[4]
	} else if r.value, err = strconv.ParseFloat(m[4], 64); err != nil {
		return bad("%q is not a number or a metric%s", m[4], suggest.After(m[4], metricNames))
	}
	for part := range strings.SplitSeq(m[1], ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		axis, value, ok := strings.Cut(part, "=")
		if !ok {
			return bad("%q does not say axis=value", part)
		}
		r.cells = append(r.cells, [2]string{strings.TrimSpace(axis), strings.TrimSpace(value)})
	}
	return r, nil
}

// Possible returns an error when the rule names no cell of m.
func (r Rule) Possible(m *store.Manifest) error {
	for i := range m.Cells {
		if r.names(&m.Cells[i]) {
			return nil
		}
	}
	return fmt.Errorf("requirement %q: no cell is like that: berth plan lists the cells", r.text)
}

// Check returns what does not meet the rule, one line a cell. A metric that has
// no value does not meet any rule; nor does a rule that no cell is named by.
func (r Rule) Check(s *summary.Summary, m *store.Manifest) (failed []string) {
	named := false
	for i := range s.Cells {
		if !r.names(&m.Cells[i]) {
			continue
		}
		named = true
		row := &s.Cells[i]
		got, want := metrics[r.metric](row), &r.value
		if r.of != "" {
			want = metrics[r.of](row)
		}
		if got == nil || want == nil {
			failed = append(failed, fmt.Sprintf("%s: cell %s has no %s", r.text, cellName(row), r.metric))
		} else if !r.holds(*got, *want) {
			text := fmt.Sprintf("%s: cell %s has %s %g", r.text, cellName(row), r.metric, *got)
			if r.metric == "unexpected" {
				text += " (" + strings.Join(row.Unexpected, "; ") + ")"
			}
			failed = append(failed, text)
		}
	}
	if !named {
		failed = append(failed, r.text+": no cell is like that")
	}
	return failed
}

func cellName(r *summary.Row) string {
	if r.Name == "" {
		return r.Agent
	}
	return r.Name
}

func (r Rule) holds(a, b float64) bool {
	switch r.op {
	case ">=":
		return a >= b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case "<":
		return a < b
	default:
		return a == b
	}
}

// names reports whether the rule applies to a cell.
func (r Rule) names(c *store.Cell) bool {
	for _, want := range r.cells {
		if choice(c, want[0]) != want[1] {
			return false
		}
	}
	return true
}

// choice is the value that a cell has on an axis, or what it has without one.
func choice(c *store.Cell, axis string) string {
	if value, ok := c.Choices[axis]; ok {
		return value
	}
	return map[string]string{"agent": c.Agent, "model": c.Model, "environment": c.Environment}[axis]
}
