package summary

import (
	"fmt"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"

	"github.com/berth-eval/berth/core/store"
)

// Interventions describes what people did to a run while it ran that can
// change results: other budgets, cancelled trials, and turns that were ended. Oldest
// first, at most 20; then how many measured trials were run again, and how many were
// verified again.
func Interventions(x *store.Index) []string {
	var said []string
	for i := range x.Notes {
		if changesResults(&x.Notes[i]) {
			said = append(said, x.Notes[i].Note)
		}
	}
	const most = 20
	if n := len(said); n > most {
		said = append(said[:most:most], fmt.Sprintf("and %d more changes during the run", n-most))
	}
	if n := rerun(x); n > 0 {
		said = append(said, terminal.Count(n, "trial was run again, although it was measured, after an error of its verifier (--again verifier_error)",
			"trials were run again, although they were measured, after errors of their verifiers (--again verifier_error)"))
	}
	regraded := 0
	for _, t := range x.Trials {
		if a := t.Accepted(); a != nil && a.Result != nil && a.Result.Origin > 0 {
			regraded++
		}
	}
	if regraded > 0 {
		said = append(said, terminal.Count(regraded, "trial counts", "trials count")+" by a verdict of berth regrade, whose tests may be other ones than those of the plan")
	}
	return said
}

// rerun counts the trials whose agents worked again after an attempt was measured.
// A regrade is not work of an agent.
func rerun(x *store.Index) (n int) {
	for _, t := range x.Trials {
		measured := false
		for i := range t.Attempts {
			r := t.Attempts[i].Result
			if r == nil || r.Origin > 0 {
				continue
			}
			if measured {
				n++
				break
			}
			measured = r.Measured()
		}
	}
	return n
}

// InterventionsOn returns those that an attempt of t can have felt: what was done to
// it, and other budgets of the run before it ended.
func InterventionsOn(m *store.Manifest, x *store.Index, t *store.TrialState, a *store.AttemptState) (said []string) {
	var end time.Time
	if a.Result != nil {
		end = a.Result.End
	}
	for i := range x.Notes {
		n := &x.Notes[i]
		if !changesResults(n) || !end.IsZero() && n.Time.After(end) {
			continue
		}
		of := n.Intervention
		during := !n.Time.Before(a.Began)
		if of.Set != nil || during && (of.Trial == t.ID || of.Cell != "" && of.Cell == m.Cells[t.Cell].Slug) {
			said = append(said, n.Note)
		}
	}
	return said
}

// changesResults reports whether a note is about a change that can change results.
// How many attempts run at the same time, and when they begin, does not.
func changesResults(n *store.Entry) bool {
	of := n.Intervention
	if of == nil {
		return false
	}
	for name := range of.Set {
		if name != "in_flight" {
			return true
		}
	}
	return of.Trial != "" || of.Cell != ""
}
