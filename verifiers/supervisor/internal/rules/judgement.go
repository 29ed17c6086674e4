// Package rules holds what the supervisor decides without a model: what a reply
// is worth, whether a turn was completed, which message the agent gets, and what
// the attempt ends with. Everything here is a pure function. The rules are those
// of UniClawBench's own program.
package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/verifier"
)

// State is where the supervisor sees the attempt.
type State string

// The states. The zero value is not valid.
const (
	InProgress        State = "in_progress"
	Incomplete        State = "incomplete"
	CompleteButFailed State = "complete_but_failed"
	CompleteAndPassed State = "complete_and_passed"
	TerminalFailure   State = "terminal_failure"
)

var states = []State{InProgress, Incomplete, CompleteButFailed, CompleteAndPassed, TerminalFailure}

// Confidence is how sure the supervisor is.
type Confidence string

// The confidences. The zero value is not valid.
const (
	Low    Confidence = "low"
	Medium Confidence = "medium"
	High   Confidence = "high"
)

// Tag is a hint for the user, by its name.
type Tag string

// Tags are all tags.
var Tags = []Tag{
	"follow_public_task", "keep_query_literal", "open_ranked_first_result", "save_visible_evidence", "save_supporting_screenshot",
	"use_only_visible_evidence", "verify_evidence_matches_conclusion", "check_correct_source_page", "record_observable_conclusion",
	"do_not_claim_completion", "credential_hygiene",
}

// Bounds of a reply. Longer texts are cut, and what is beyond a number is left
// out.
const (
	MaxRationale = 2000 // characters
	MaxMissing   = 10
	MaxArtifact  = 200 // characters
	MaxTags      = 10
)

// Reply is what the supervisor's model replies.
type Reply struct {
	Verdict     string   `json:"verdict"`
	State       string   `json:"attempt_state"`
	Recoverable bool     `json:"recoverable"`
	Score       float64  `json:"score"` // from 0 to 1: the schema has checked it
	Confidence  string   `json:"confidence"`
	Rationale   string   `json:"rationale"`
	Missing     []string `json:"missing_artifacts"`
	Tags        []string `json:"guidance_tags"`
}

// Judgement is a checked reply.
type Judgement struct {
	Verdict     verifier.Decision // pass, continue or fail
	State       State
	Recoverable bool
	Score       float64 // 0 to 1
	Confidence  Confidence
	Rationale   string
	Missing     []string
	Tags        []Tag
}

// Check makes a judgement of a reply. Of the values that only explain, bad ones
// are replaced. Fails with ErrBadReply if
// the verdict is unknown or the score is not from 0 to 1.
func Check(r Reply) (Judgement, error) {
	j := Judgement{
		State: State(word(r.State)), Recoverable: r.Recoverable, Score: r.Score, Confidence: Confidence(word(r.Confidence)),
		Rationale: cut(strings.TrimSpace(r.Rationale), MaxRationale),
	}
	if slices.Contains(faults, string(j.State)) {
		j.State = TerminalFailure
	}
	if !(r.Score >= 0 && r.Score <= 1) {
		return Judgement{}, fmt.Errorf("%w: the supervisor's score is %g: it has to be from 0 to 1", verifier.ErrBadReply, r.Score)
	}
	var usual State
	switch verdict := word(r.Verdict); {
	case verdict == "pass":
		j.Verdict, usual = verifier.Pass, CompleteAndPassed
		j.Recoverable = false
	case verdict == "continue":
		j.Verdict, usual = verifier.Continue, InProgress
		j.Recoverable = true
	case verdict == "fail", slices.Contains(faults, verdict):
		j.Verdict, usual = verifier.Fail, TerminalFailure
	default:
		return Judgement{}, fmt.Errorf("%w: the supervisor's verdict is %q: it has to be pass, continue or fail", verifier.ErrBadReply, cut(r.Verdict, MaxArtifact))
	}
	if !slices.Contains(states, j.State) {
		j.State = usual
	}
	if !slices.Contains([]Confidence{Low, Medium, High}, j.Confidence) {
		j.Confidence = Medium
	}
	for _, m := range r.Missing[:min(len(r.Missing), MaxMissing)] {
		j.Missing = append(j.Missing, cut(m, MaxArtifact))
	}
	for _, t := range r.Tags {
		if tag := Tag(t); len(j.Tags) < MaxTags && slices.Contains(Tags, tag) && !slices.Contains(j.Tags, tag) {
			j.Tags = append(j.Tags, tag)
		}
	}
	return j, nil
}

// faults are verdicts and states of an earlier version of the benchmark: something
// else than the agent failed.
var faults = []string{"infra_error", "rate_limit"}

// word returns a word that a model chose, in the form in which it is compared.
func word(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// cut returns the first n characters of a text.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}

// Normalised returns the judgement as the loop takes it, when so many follow-ups
// are left. A failure that the user can help with is not the end. The state is one
// that fits the verdict.
func (j Judgement) Normalised(left int) Judgement {
	helps := j.State == CompleteButFailed || len(j.Tags) > 0 || strings.TrimSpace(j.Rationale) != ""
	switch {
	case j.Verdict == verifier.Pass:
		j.State, j.Recoverable = CompleteAndPassed, false
	case j.Verdict == verifier.Fail && left > 0 && helps:
		j.Verdict, j.Recoverable = verifier.Continue, true
		j.keep(CompleteButFailed, InProgress, Incomplete)
	case j.Verdict == verifier.Continue:
		j.Recoverable = left > 0
		j.keep(Incomplete, InProgress, CompleteButFailed)
	default:
		j.Verdict, j.Recoverable = verifier.Fail, false
		j.keep(TerminalFailure, CompleteButFailed)
	}
	return j
}

// keep replaces the state by usual unless it is one of the others.
func (j *Judgement) keep(usual State, others ...State) {
	if !slices.Contains(others, j.State) {
		j.State = usual
	}
}

// Gated returns the judgement after the gate: a pass counts only if the agent had
// completed its turn.
func (j Judgement) Gated(g Gate, left int) (Judgement, GateResult) {
	switch {
	case j.Verdict != verifier.Pass || g == Complete:
		return j, Open
	case left > 0:
		j.Verdict, j.State, j.Recoverable = verifier.Continue, Incomplete, true
		return j, Deferred
	default:
		j.Verdict, j.State, j.Recoverable = verifier.Fail, Incomplete, false
		return j, Shut
	}
}

// Handoff is what the user learns of a judgement. No text of the model is part of
// it.
func (j Judgement) Handoff(withScore bool) string {
	h := struct {
		Verdict     verifier.Decision `json:"verdict"`
		State       State             `json:"attempt_state"`
		Recoverable bool              `json:"recoverable"`
		Score       *float64          `json:"score,omitempty"`
	}{Verdict: j.Verdict, State: j.State, Recoverable: j.Recoverable}
	if withScore {
		h.Score = &j.Score
	}
	b, _ := json.Marshal(h) //nolint:errchkjson // a score is finite
	return string(b)
}
