package experiment

import (
	"fmt"
	"strings"

	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins/environment"
)

// Text is a problem of a plan on one line, without its severity. A warning about
// the whole plan names no task and no cell.
func Text(p *plan.Plan, q plan.Problem) string {
	if len(q.Cells) == len(p.Experiment.Cells) {
		q.Cells = nil
	}
	if n := len(q.Tasks); q.Severity == plan.Warning && q.Cells == nil && n == len(p.Tasks) && n > 1 {
		q.Tasks, q.Dataset = nil, ""
	}
	var b strings.Builder
	if len(q.Tasks) > 0 {
		fmt.Fprintf(&b, "task %s: ", some(q.Tasks))
	}
	if len(q.Cells) > 0 && q.Cells[0] != "" {
		fmt.Fprintf(&b, "cell %s: ", some(q.Cells))
	}
	if len(q.Tasks) == 0 && q.Dataset != "" {
		fmt.Fprintf(&b, "dataset %s: ", q.Dataset)
	}
	b.WriteString(environment.Problem{Summary: q.Summary, Detail: q.Detail}.String())
	return b.String()
}

// some names up to three of a list.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}
