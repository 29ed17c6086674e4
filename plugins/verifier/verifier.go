// Package verifier is the contract of verifier plugins: programs that grade the
// result of an agent.
//
// It holds types, sentinels and the gRPC shims of the contract. It must not
// decide what a verdict means for an attempt: the core does.
package verifier

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/model"
)

// Verifier judges attempts. One value serves many attempts at once: every
// method is safe for concurrent use.
type Verifier interface {
	// Verify judges one attempt or, in rounds, its state between two turns. log
	// receives lines for people and is never nil. Bad work is a Verdict; an error
	// means that Verify could not judge, and the attempt ends as verifier_error.
	// Verify fails with ErrArtifactMissing if the work to judge is missing.
	Verify(ctx context.Context, r Request, log func(line string)) (Verdict, error)
}

// Rewriter is optional (capability "rewrite"): the verifier checks the message of
// a simulated user before it is sent.
type Rewriter interface {
	// Rewrite returns the message to send instead of candidate. Empty ends the
	// loop.
	Rewrite(ctx context.Context, r Request, v Verdict, candidate string) (string, error)
}

// CapabilityRewrite is announced by a verifier that is a Rewriter.
const CapabilityRewrite = "rewrite"

// The errors of verifiers. The core sees them as the same errors: errors.Is works
// across the wire.
var (
	ErrArtifactMissing = fault.ErrArtifactMissing // outcome artifact_missing
	ErrBadReward       = fault.ErrBadReward       // malformed, not finite, contradicting: outcome verifier_error
	ErrBadReply        = fault.ErrBadReply        // a model's reply is not a judgment, also when asked again: outcome judge_error
)

// Needs is where a verifier works; a part of Describe.
type Needs string

// The needs. The zero value is not valid.
const (
	NeedsNone    Needs = "none"    // a pure function of the view folder: can be run again later
	NeedsSandbox Needs = "sandbox" // a shell in the sandbox that is graded
	NeedsOwn     Needs = "own"     // a shell in its own sandbox, which is kept over all rounds of a stage
)

// Traits are the properties of a verifier that Describe returns, besides name and
// schema.
type Traits struct {
	Needs  Needs    `json:"needs"`
	Models []string `json:"models,omitempty"` // names of the models it asks for; "default" is the usual one
	Rounds bool     `json:"rounds,omitempty"` // can judge between turns
	// OwnWith are attributes of the configuration, by name, with the text that gives
	// the verifier its own sandbox, as NeedsOwn does. One of them is enough.
	OwnWith map[string]string `json:"own_with,omitempty"`
}

// With returns the traits of a verifier with a configuration, the JSON of its
// block: Needs says whether it needs its own sandbox because of that.
func (t Traits) With(config json.RawMessage) Traits {
	var given map[string]any
	if len(t.OwnWith) == 0 || json.Unmarshal(config, &given) != nil {
		return t
	}
	for name, text := range t.OwnWith {
		if given[name] == text {
			t.Needs = NeedsOwn
		}
	}
	return t
}

// Request is the input of Verify.
type Request struct {
	View       string                    `json:"view"`               // folder: task.json, instruction.md, the task's files for verifiers, attempt/…
	Stage      string                    `json:"stage,omitempty"`    // name of the stage
	Round      int                       `json:"round,omitempty"`    // 1… between turns; 0: after settle
	RoundsLeft int                       `json:"rounds_left"`        // how many follow-ups may still come
	Earlier    []Verdict                 `json:"earlier,omitempty"`  // of the verifiers before it, in the task's order
	Shell      string                    `json:"shell,omitempty"`    // address of a shell in the sandbox; empty with NeedsNone, and in rounds with NeedsSandbox
	Models     map[string]model.Endpoint `json:"models,omitempty"`   //
	User       string                    `json:"user,omitempty"`     // that commands run as; empty: the session's default
	Env        map[string]string         `json:"env,omitempty"`      // for commands of the verification; may hold secrets
	Timeout    time.Duration             `json:"timeout"`            // how long Verify may take; the core enforces it
	Scratch    string                    `json:"scratch,omitempty"`  // empty folder on the host, kept in the attempt as verifier/
	Settings   json.RawMessage           `json:"settings,omitempty"` // the task's for this verifier
	Config     json.RawMessage           `json:"config,omitempty"`   // the experiment's block
}

// Decision is the result of a verdict.
type Decision string

// The decisions. The zero value is not valid.
const (
	Pass     Decision = "pass"
	Fail     Decision = "fail"
	Continue Decision = "continue" // in rounds only: let the user answer, and judge again
	Scored   Decision = "scored"   // scores, and nothing decided
)

// Verdict is what a verifier returns.
type Verdict struct {
	Verifier    string           `json:"verifier,omitempty"` // set by the core
	Stage       string           `json:"stage,omitempty"`    // set by the core
	Round       int              `json:"round,omitempty"`    // set by the core
	Decision    Decision         `json:"decision"`
	Scores      map[string]Score `json:"scores,omitempty"`
	Checkpoints []Checkpoint     `json:"checkpoints,omitempty"`
	Handoff     string           `json:"handoff,omitempty"`   // the only part that a simulated user sees
	Rationale   string           `json:"rationale,omitempty"` // private: never shown to agent or user
	Findings    []Finding        `json:"findings,omitempty"`
	// Labels are texts by name that are counted over the trials of a run, such as
	// status = "budget_exhausted". They decide nothing.
	Labels map[string]string `json:"labels,omitempty"`
}

// The bounds of the labels of a verdict.
const (
	MaxLabels     = 50
	MaxLabelBytes = 200 // of a name, and of a text
)

// ValidLabels returns an error if the labels are too many or too long, or if one
// has no name.
func (v *Verdict) ValidLabels() error {
	if len(v.Labels) > MaxLabels {
		return fmt.Errorf("%d labels, at most %d are allowed", len(v.Labels), MaxLabels)
	}
	for name, text := range v.Labels {
		switch {
		case name == "":
			return fmt.Errorf("the label %q has no name", text[:min(len(text), MaxLabelBytes)])
		case len(name) > MaxLabelBytes:
			return fmt.Errorf("the name of label %q… has %d bytes, at most %d are allowed", name[:MaxLabelBytes], len(name), MaxLabelBytes)
		case len(text) > MaxLabelBytes:
			return fmt.Errorf("label %q has %d bytes, at most %d are allowed", name, len(text), MaxLabelBytes)
		}
	}
	return nil
}

// Judge returns the verdict of a verifier that only passes or fails.
func Judge(passed bool, rationale string) Verdict {
	if passed {
		return Verdict{Decision: Pass, Rationale: rationale}
	}
	return Verdict{Decision: Fail, Rationale: rationale}
}

// Score is a named number. Its range is Min to Max, if they are set; a value
// outside of the range is an error. All three must be numbers from -1e100 to 1e100.
type Score struct {
	Value float64  `json:"value"`
	Min   *float64 `json:"min,omitempty"`
	Max   *float64 `json:"max,omitempty"`
	Lower bool     `json:"lower_is_better,omitempty"`
}

// Share returns a score from 0 to 1.
func Share(value float64) Score { return Score{Value: value, Min: new(0.0), Max: new(1.0)} }

// maxScore is the largest score: the sums and squares in the tables of a run with a
// million of them are still finite.
const maxScore = 1e100

// Valid returns an ErrBadReward if the score is not a number from -1e100 to 1e100, or
// is outside its own range.
func (s Score) Valid() error {
	bounded := func(v float64) bool { return math.Abs(v) <= maxScore } // and not NaN
	switch {
	case !bounded(s.Value):
		return fmt.Errorf("%w: %g is not a number from %g to %g", ErrBadReward, s.Value, -maxScore, maxScore)
	case s.Min != nil && !bounded(*s.Min), s.Max != nil && !bounded(*s.Max):
		return fmt.Errorf("%w: a bound of its range is not a number from %g to %g", ErrBadReward, -maxScore, maxScore)
	case s.Min != nil && s.Value < *s.Min:
		return fmt.Errorf("%w: %g is below its own minimum of %g", ErrBadReward, s.Value, *s.Min)
	case s.Max != nil && s.Value > *s.Max:
		return fmt.Errorf("%w: %g is above its own maximum of %g", ErrBadReward, s.Value, *s.Max)
	}
	return nil
}

// Checkpoint is one line of a rubric, or one test.
type Checkpoint struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Weight  float64 `json:"weight,omitempty"`
	Note    string  `json:"note,omitempty"`
	Skipped bool    `json:"skipped,omitempty"` // it was not tried, so Passed is false
}

// Result is the result of a checkpoint in one word.
func (c Checkpoint) Result() string {
	switch {
	case c.Passed:
		return "passed"
	case c.Skipped:
		return "skipped"
	}
	return "failed"
}

// TestsNotStarted is the code of a finding beside Fail: the tests could not be run,
// perhaps because the agent removed what they need. Where the agent cannot be the
// cause, the core makes it a verifier_error.
const TestsNotStarted = "tests_not_started"

// Severity is the effect of a finding on the integrity of an attempt.
type Severity string

// The severities, mildest first. The zero value is not valid.
const (
	Note     Severity = "note"     // worth knowing
	Exposed  Severity = "exposed"  // the result could have been influenced
	Violated Severity = "violated" // it was: the attempt gets no score
)

// Finding is something unusual that a verifier reports.
type Finding struct {
	Code     string   `json:"code"` // snake_case, countable: "stale_reward"
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // for people
}
