package audit

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// origin compares what a result of a regrade says of the agent's work with the attempt
// that it verified again.
func (a *audit) origin(name, dir string, r *record.Result) {
	file := path.Join(name, record.ResultFile)
	o, err := store.ReadResult(filepath.Join(filepath.Dir(dir), store.AttemptDir(r.Regraded.Attempt)))
	if err != nil {
		a.problem(results, file, 0, "the attempt %d, which it verified again, cannot be read: %v", r.Regraded.Attempt, err)
		return
	}
	switch is, want := r.Worked(), o.Worked(); {
	case r.AgentTime != o.AgentTime:
		a.problem(results, file, 0, "its agent time is %s, and attempt %d, which it verified again, took %s", r.AgentTime, o.Attempt, o.AgentTime)
	case r.Steps == 0 && len(is) == 0 && (o.Steps > 0 || len(want) > 0):
		a.skip(results, "steps and tokens of the agent in attempts that an older berth verified again: it left them out")
	case r.Steps != o.Steps:
		a.problem(results, file, 0, "it has %d steps of the agent, and attempt %d, which it verified again, has %d", r.Steps, o.Attempt, o.Steps)
	case !reflect.DeepEqual(is, want):
		a.problem(results, file, 0, "the tokens and costs of its agent are not those of attempt %d, which it verified again", o.Attempt)
	}
}

// rule is what decides whether an attempt passed, and how it was verified.
type rule struct{ file, success, mode string }

// rule notes the rule of a result.
func (a *audit) rule(name string, t *store.TrialState, r *record.Result) {
	file := path.Join(name, record.ResultFile)
	if r.Success == nil && r.Outcome.Measured() && a.manifest.Header.Imported == "" {
		a.problem(scores, file, 0, "it has no rule of success, and its outcome is %s", r.Outcome)
	}
	if r.Success == nil || r.Mode == "" || r.Regraded != nil {
		return
	}
	success, err := json.Marshal(r.Success)
	if err != nil {
		a.problem(scores, file, 0, "its rule of success cannot be read: %v", err)
		return
	}
	at := fmt.Sprint(t.Cell, " ", t.Dataset, " ", r.TaskDigest)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decided[at] = append(a.decided[at], rule{file, string(success), r.Mode})
}

// rules compares the rules of attempts at the same task in the same cell, which are
// the same ones.
func (a *audit) rules() {
	for _, all := range a.decided {
		slices.SortFunc(all, func(a, b rule) int { return strings.Compare(a.file, b.file) })
		for _, r := range all[1:] {
			switch first := all[0]; {
			case first.success != r.success:
				a.problem(scores, r.file, 0, "its rule of success is %s, and that of %s is %s", r.success, first.file, first.success)
			case first.mode != r.mode:
				a.problem(scores, r.file, 0, "it was verified in the mode %q, and %s in %q", r.mode, first.file, first.mode)
			}
		}
	}
}
