package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Bounds of reading the events, turns and steps of an attempt, in bytes.
const (
	maxLine  = 64 << 20
	maxLines = 4 << 30
)

// work compares what a result says of the agent's work with the events, turns and
// steps that were recorded: its findings, which the integrity depends on, its time,
// how it ended, and its steps. Results of a regrade have the work of another attempt.
func (a *audit) work(name, dir string, r *record.Result) {
	switch {
	case a.manifest.Header.Imported != "":
		return
	case r.Success == nil && !r.Outcome.Measured():
		a.skip(results, "what the agent did in an attempt whose worker was lost, or that no worker took: nothing of it is here")
		return
	}
	a.did(results, 1)
	if r.Regraded != nil {
		a.origin(name, dir, r)
		return
	}
	file := path.Join(name, record.ResultFile)
	a.findings(name, dir, r)

	var took time.Duration
	var end record.AgentEnd
	turns := 0
	known := each(a, name, dir, record.TurnsFile, func(t *record.Turn) {
		if t.Kind == record.TurnYield {
			turns, took, end = turns+1, took+t.Took, t.End
		}
	})
	if known {
		// A turn that its plugin or the sandbox cut off has no line.
		if r.AgentTime < took || r.AgentTime > took && r.Error == nil {
			a.problem(results, file, 0, "its agent time is %s, and %s gives %s", r.AgentTime, record.TurnsFile, took)
		}
		if turns > 0 && r.AgentEnd != end && r.AgentEnd != record.SandboxLost {
			a.problem(results, file, 0, "its agent ended by %q, and the last turn in %s by %q", r.AgentEnd, record.TurnsFile, end)
		}
	}
	steps := int64(0)
	if each(a, name, dir, record.StepsFile, func(s *record.Step) {
		if s.Role == string(agent.RoleAgent) && s.Step.Source == trajectory.Model {
			steps++
		}
	}) && steps != r.Steps {
		a.problem(results, file, 0, "it has %d steps of the agent, and %s has %d", r.Steps, record.StepsFile, steps)
	}
}

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

// findings looks for findings that were taken out of a result, or made harmless.
func (a *audit) findings(name, dir string, r *record.Result) {
	type finding struct {
		code     string
		severity verifier.Severity
	}
	has := map[finding]int{}
	for _, f := range r.Findings {
		has[finding{f.Code, f.Severity}]++
	}
	each(a, name, dir, record.EventsFile, func(e *record.Event) {
		if e.Finding == nil || e.Finding.Severity == verifier.Note {
			return
		}
		f := finding{e.Finding.Code, e.Finding.Severity}
		if has[f]--; has[f] < 0 {
			a.problem(results, path.Join(name, record.ResultFile), 0, "it lacks a finding of %s: %s (%s)", record.EventsFile, f.code, f.severity)
		}
	})
}

// each calls do with the lines of a record of an attempt; one without lines may be
// missing. It reports whether all of it was read.
func each[T any](a *audit, name, dir, file string, do func(*T)) bool {
	cut, err := untrusted.Lines(dir, file, maxLine, maxLines, func(line []byte) {
		var x T
		if json.Unmarshal(line, &x) == nil { // one that is damaged was named by its checksum
			do(&x)
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.problem(results, path.Join(name, file), 0, "it cannot be read: %v", err)
		return false
	}
	if cut {
		a.skip(results, file+" of an attempt: it is too long to be read")
	}
	return !cut
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
