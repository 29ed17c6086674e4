package cli

import (
	"fmt"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
)

// powerOf says what the planned tasks and repetitions can detect, and what it takes
// to detect a difference, unless that is 0. Nil if there are no two cells to
// compare.
func powerOf(p *output.Plan, detect float64) *output.Power {
	if len(p.Cells) < 2 || p.Repeat < 1 {
		return nil
	}
	tasks := p.Cells[0].Trials / p.Repeat
	for i := range p.Cells {
		tasks = min(tasks, p.Cells[i].Trials/p.Repeat)
	}
	assumed := numbers.Typical
	detectable, err := numbers.Detectable(tasks, p.Repeat, assumed)
	if err != nil { // a cell has no tasks
		return nil
	}
	res := &output.Power{
		Tasks: tasks, Repetitions: p.Repeat, Power: numbers.TestPower, Level: numbers.TestLevel, Rate: assumed.Rate, ICC: assumed.ICC,
		Correlation: assumed.Correlation, Detectable: detectable, Detect: detect,
	}
	if detect == 0 {
		return res
	}
	if res.Needed, err = numbers.Needed(tasks, detect, assumed); err != nil {
		res.Needed, res.Impossible = 0, err.Error()
	}
	return res
}

// power prints what a run can detect.
func (a *app) power(p *output.Power) {
	if p == nil {
		return
	}
	planned := terminal.Count(p.Tasks, "task", "tasks") + " × " + terminal.Count(p.Repetitions, "repetition", "repetitions")
	assumed := fmt.Sprintf("power %g, if about %.0f %% are solved", p.Power, 100*p.Rate)
	if p.Detectable > 1 {
		a.Printf("detectable: no difference between two cells with %s (%s)\n", planned, assumed)
	} else {
		a.Printf("detectable: a difference between two cells of %.1f points or more with %s (%s)\n", 100*p.Detectable, planned, assumed)
	}
	switch {
	case p.Impossible != "":
		a.Printf("to detect %.4g points: %s\n", 100*p.Detect, p.Impossible)
	case p.Needed > 0:
		a.Printf("to detect %.4g points: %s of each task\n", 100*p.Detect, terminal.Count(p.Needed, "repetition", "repetitions"))
	}
}
