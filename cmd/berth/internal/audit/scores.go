package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/number"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Bounds of what is read of an attempt, in bytes.
const (
	maxVerdict  = 64 << 20 // a line of verdicts.jsonl
	maxVerdicts = 1 << 30
	maxReward   = 64 << 10 // a reward file
	maxFiles    = 100_000  // names below the verifier's folder
)

// scores computes the scores, the outcome and the integrity of an attempt again.
func (a *audit) scores(name, dir string, r *record.Result) {
	file := path.Join(name, record.ResultFile)
	a.did(scores, 1)
	verified := false
	for i := range r.Stages {
		verified = verified || len(verdictsOf(r, r.Stages[i].Name)) > 0
	}
	failed := r.Error != nil || slices.ContainsFunc(r.Stages, func(s record.StageResult) bool { return s.Error != nil })
	level, reasons := outcome.Integrity(r.Findings, verified)
	// One that ended before all verifiers had judged is unknown, with the verdicts so far.
	partly := r.Integrity == record.Unknown && level == record.Checked && (failed || !r.Outcome.Measured())
	if level != r.Integrity && !partly {
		a.problem(scores, file, 0, "its integrity is %s, and its findings give %s (%s)", r.Integrity, level, strings.Join(reasons, "; "))
	}
	a.verdicts(name, dir, r)
	a.rewards(name, dir, r)
	if failed && (r.Outcome == record.Failed || r.Outcome == record.Scored) {
		a.problem(scores, file, 0, "its outcome is %s, and it has an error", r.Outcome)
	}
	if r.Success == nil || r.Outcome == record.NotRun || failed && r.Outcome != record.Passed || !r.Outcome.Measured() || len(r.Stages) == 0 {
		return // what ended without scores has none to compute
	}
	a.outcome(file, r)
}

// outcome computes the scores and the outcome of an attempt that has scores.
func (a *audit) outcome(file string, r *record.Result) {
	stages := make([]outcome.Stage, len(r.Stages))
	for i := range r.Stages {
		s := &r.Stages[i]
		vs := verdictsOf(r, s.Name)
		ran := s.Outcome != record.NotRun
		stages[i] = outcome.Stage{Name: s.Name, Ran: ran, Verified: ran && (len(vs) > 0 || s.Outcome == record.Scored), AgentEnd: s.AgentEnd, Verdicts: vs}
	}
	got := outcome.Scores(*r.Success, stages, func(stage string) int {
		for i := range r.Stages { // a stage that never ran counts as 0, and all stages of a format have verifiers
			if s := &r.Stages[i]; s.Name == stage && s.Outcome == record.Scored && len(verdictsOf(r, stage)) == 0 {
				return 0
			}
		}
		return 1
	})
	if r.Integrity == record.Violated {
		got = nil
	}
	if !maps.EqualFunc(got, r.Scores, near) {
		a.problem(scores, file, 0, "its scores are %v, and its verdicts give %v", r.Scores, got)
	}
	o, _ := outcome.Outcome(outcome.Facts{Success: *r.Success, Named: true, Stages: stages, Scores: got, Violated: r.Integrity == record.Violated})
	if o != r.Outcome && r.Outcome != record.Scored {
		a.problem(scores, file, 0, "its outcome is %s, and its verdicts give %s", r.Outcome, o)
	}
	if v, ok := got[r.Success.Score]; ok && (r.Score == nil || !near(*r.Score, v)) {
		a.problem(scores, file, 0, "its score is not the %g that its verdicts give", v)
	}
}

// near reports whether two numbers are the same but for the order of additions.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// verdictsOf returns the verdicts of a stage that count.
func verdictsOf(r *record.Result, stage string) (all []verifier.Verdict) {
	for i := range r.Verdicts {
		if v := &r.Verdicts[i]; v.Stage == stage {
			all = append(all, *v)
		}
	}
	return all
}

// verdicts compares the verdicts that count with those that were recorded one by
// one. Those of rounds are reduced by a rule of the task, which is not here: such a
// score must lie between those of the rounds.
func (a *audit) verdicts(name, dir string, r *record.Result) {
	file := path.Join(name, record.VerdictsFile)
	kept := map[string][]verifier.Verdict{}
	_, err := untrusted.Lines(dir, record.VerdictsFile, maxVerdict, maxVerdicts, func(line []byte) {
		var v record.Verdict
		if json.Unmarshal(line, &v) == nil {
			at := v.Stage + "\x00" + v.Verifier
			kept[at] = append(kept[at], v.Verdict)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		if len(r.Verdicts) > 0 {
			a.problem(scores, file, 0, "it is missing, and the result has %d verdicts", len(r.Verdicts))
		}
		return
	}
	if err != nil {
		a.problem(scores, file, 0, "it cannot be read: %v", err)
		return
	}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		of := kept[v.Stage+"\x00"+v.Verifier]
		for score, has := range v.Scores {
			low, high := math.Inf(1), math.Inf(-1)
			for k := range of {
				if s, ok := of[k].Scores[score]; ok {
					low, high = min(low, s.Value), max(high, s.Value)
				}
			}
			if has.Value < low-1e-9 || has.Value > high+1e-9 {
				a.problem(scores, file, 0, "the result has %g as %s of the verifier %s, which is in none of its verdicts here", has.Value, score, v.Verifier)
			}
		}
		if !slices.ContainsFunc(of, func(k verifier.Verdict) bool { return k.Decision == v.Decision }) && len(of) > 0 {
			a.problem(scores, file, 0, "the result has the decision %q of the verifier %s, which is in none of its verdicts here", v.Decision, v.Verifier)
		}
		if len(of) == 0 {
			a.problem(scores, file, 0, "the result has a verdict of the verifier %s, and there is none here", v.Verifier)
		}
	}
}

// rewards compares the rewards of stages with the reward files that were kept.
func (a *audit) rewards(name, dir string, r *record.Result) {
	beside := []string{"left_running", "service_changed", "service_traceable"}
	if slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return slices.Contains(beside, f.Code) }) {
		a.skip(scores, "attempts in which processes of the agent, or services that it could change, ran beside the tests: they could change the reward file after it was read")
		return
	}
	list, more, err := untrusted.List(filepath.Join(dir, record.VerifierDir), maxFiles)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil || more {
		a.skip(scores, "the folder of a verifier cannot be listed whole: its reward files were not looked for")
		return
	}
	for _, file := range list {
		base := path.Base(file)
		s := stageOf(r, file)
		if base != "reward.json" && base != "reward.txt" || s == nil || s.Rewards == nil {
			continue
		}
		b, err := untrusted.Read(dir, path.Join(record.VerifierDir, file), maxReward)
		if err != nil {
			continue // no verifier took it, either
		}
		got, err := rewardsIn(base, b)
		at := path.Join(name, record.VerifierDir, file)
		if err != nil {
			a.problem(scores, at, 0, "the stage %q has rewards, and the file that was kept is not a reward: %v", s.Name, err)
			continue
		}
		a.did(scores, 1)
		for score, v := range got {
			if has, ok := s.Rewards[score]; ok && !near(has, v) {
				a.problem(scores, at, 0, "it says %s = %g, and the result has %g", score, v, has)
			}
		}
	}
}

// stageOf returns the stage that a file of the verifier's folder is of: the one whose
// name is a folder of its path, or the only one. Nil: it is not known.
func stageOf(r *record.Result, file string) *record.StageResult {
	parts := strings.Split(file, "/")
	for i := range r.Stages {
		if slices.Contains(parts, r.Stages[i].Name) || slices.Contains(parts, store.Name(r.Stages[i].Name, 80)) {
			return &r.Stages[i]
		}
	}
	if len(r.Stages) == 1 {
		return &r.Stages[0]
	}
	return nil
}

// rewardsIn reads a reward file: an object of names to numbers or booleans, or one
// number, the score "reward".
func rewardsIn(base string, b []byte) (map[string]float64, error) {
	if base == "reward.txt" {
		v, ok := number.Decimal(string(bytes.TrimSpace(b)))
		if !ok {
			return nil, fmt.Errorf("%.60q is not a decimal number", b)
		}
		return map[string]float64{"reward": v}, nil
	}
	var raw map[string]any
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, v := range raw {
		switch v := v.(type) {
		case float64:
			out[name] = v
		case bool:
			out[name] = 0
			if v {
				out[name] = 1
			}
		default:
			return nil, fmt.Errorf("%q is not a number", name)
		}
	}
	return out, nil
}
