package numbers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// WeighCategory is the weigh of Rules that lets all categories weigh the same.
const WeighCategory = "category"

// DefaultMaxInfrastructure is the share of infrastructure outcomes above which a
// table is refused, unless the experiment says another.
const DefaultMaxInfrastructure = 0.02

// Rules say how tables are made of a run, as its experiment says.
type Rules struct {
	MaxInfrastructure float64 // of a cell's planned trials, from 0 to 1
	RefuseExposed     bool
	Weigh             string // WeighCategory, or empty

	eachScore bool // of a table of all scores by name, for which none has to decide
}

// RulesOf returns the rules of some runs: the strictest of each. Fails if they weigh
// tasks differently.
func RulesOf(runs []Run) (Rules, error) {
	rules := Rules{MaxInfrastructure: 1}
	var err error
	for i := range runs {
		h := runs[i].Manifest.Header.Report
		if h == nil {
			h = &store.Report{MaxInfrastructure: DefaultMaxInfrastructure}
		}
		rules.MaxInfrastructure = min(rules.MaxInfrastructure, h.MaxInfrastructure)
		rules.RefuseExposed = rules.RefuseExposed || h.RefuseExposed
		if i > 0 && h.Weigh != rules.Weigh {
			err = fmt.Errorf("%s and %s weigh tasks differently (weigh in the report block): print the numbers of each alone", runs[0].Name(), runs[i].Name())
		}
		rules.Weigh = h.Weigh
	}
	return rules, err
}

// Refusal is the error for numbers that are not printed. It has the reasons.
type Refusal []string

// Error implements error.
func (r Refusal) Error() string {
	return "the numbers are not printed:\n  " + strings.Join(r, "\n  ") + "\nTo print them with these reasons as marks, use --force"
}

// Refused returns the reasons not to print numbers of each cell of some runs.
func (r Rules) Refused(j *Joined) [][]string {
	reasons := make([][]string, len(j.Cells))
	of := make([][]*store.TrialState, len(j.Cells))
	for i := range j.Trials {
		t := &j.Trials[i]
		of[t.Cell] = append(of[t.Cell], t.TrialState)
	}
	for i := range of {
		reasons[i] = r.reasons(j.Cells[i].Name, j.Cells[i].Runs, of[i])
	}
	return reasons
}

// resume returns advice to continue runs. An imported run cannot be continued.
func resume(advice string, runs []*Run, flags string) string {
	var commands []string
	for _, run := range runs {
		if run.Manifest.Header.Imported == "" {
			commands = append(commands, "berth resume "+report.Display(run.Dir)+flags)
		}
	}
	if len(commands) == 0 {
		return ""
	}
	return advice + strings.Join(commands, "; ")
}

// reasons are those not to print numbers of one cell of some runs. Trials that were
// known before the run not to be possible do not count.
func (r Rules) reasons(cell string, runs []*Run, trials []*store.TrialState) (reasons []string) {
	again := map[string]bool{}
	planned, measured, infrastructure, missing, exposed, undecided := 0, 0, 0, 0, 0, 0
	for _, t := range trials {
		if t.Refused != "" || t.Invalid != "" {
			continue
		}
		planned++
		switch {
		case t.Measured():
			measured++
			if t.Accepted().Result.Integrity == record.Exposed {
				exposed++
			}
			if len(t.Accepted().Result.Scores) > 0 && !r.eachScore {
				undecided++
			}
		case t.Outcome().Infrastructure():
			infrastructure++
			again[string(t.Outcome())] = true
		default:
			missing++
		}
	}
	if share := float64(infrastructure) / max(1, float64(planned)); share > r.MaxInfrastructure {
		reasons = append(reasons, fmt.Sprintf("%s: %d of %d planned trials (%.1f %%) ended because of infrastructure errors, more than %g %%%s",
			cell, infrastructure, planned, 100*share, 100*r.MaxInfrastructure, resume(". Run them again: ", runs, " --again "+strings.Join(slices.Sorted(maps.Keys(again)), ","))))
	}
	if missing > 0 {
		reasons = append(reasons, fmt.Sprintf("%s: %d of %d planned trials have no result%s", cell, missing, planned, resume(". Finish them: ", runs, "")))
	}
	if r.RefuseExposed && exposed > 0 {
		reasons = append(reasons, fmt.Sprintf("%s: %d of %d results are exposed, and the experiment says that none may be (report { exposed = false })", cell, exposed, measured))
	}
	if undecided > 0 {
		reasons = append(reasons, fmt.Sprintf("%s: %d of %d results have scores of which none decides, so that they count as 0. "+
			"See each score with berth show --by reward. In a new run, success { key = … at_least = … } in the dataset block says which one decides", cell, undecided, measured))
	}
	return reasons
}
