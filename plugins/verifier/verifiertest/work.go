package verifiertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/verifier"
)

// plain is the view of a small finished attempt, as the core writes it.
var plain = map[string]string{
	"task.json":                       `{"name": "kit/plain", "stages": [{"name": "main"}]}`,
	"instruction.md":                  "Write the number 42 into answer.txt.\n",
	"tests/answer.txt":                "42\n",
	"attempt/turns.jsonl":             `{"turn": 1, "stage": "main", "message": "Write the number 42 into answer.txt.", "end": "done", "yield": "done"}` + "\n",
	"attempt/steps.jsonl":             `{"step_id": 1, "source": "agent", "message": "42"}` + "\n",
	"attempt/artifacts/answer.txt":    "42\n",
	"attempt/captures/.keep":          "",
	"attempt/verdicts.jsonl":          "",
	"attempt/artifacts/notes/long.md": "nothing to see\n",
}

// cases returns the author's cases, or one of the kit's own.
func (s *Subject) cases() []Case {
	if len(s.Cases) > 0 {
		return s.Cases
	}
	return []Case{{Name: "a small finished attempt", Files: plain}}
}

// request writes the files of c and completes its request.
func (s *Subject) request(t *conformance.T, c *Case) verifier.Request {
	r := c.Request
	if r.View == "" {
		r.View = t.TempDir()
		t.Write(r.View, c.Files)
	}
	r.Scratch = cmp.Or(r.Scratch, t.TempDir())
	r.Timeout = cmp.Or(r.Timeout, 30*time.Second)
	r.Stage = cmp.Or(r.Stage, "main")
	if r.Config == nil {
		r.Config = s.Config
	}
	if r.Shell == "" && s.Shell != nil && s.Traits.With(r.Config).Needs != verifier.NeedsNone {
		r.Shell, _ = s.Shell(t)
		c.furnish(t, r.Shell)
	}
	if r.Models == nil {
		r.Models = s.Models
	}
	return r
}

// verify judges one request.
func (s *Subject) verify(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
	return s.Verifier.Verify(ctx, r, ignore)
}

// ignore discards the log.
func ignore(string) {}

// shape reports what is wrong with the form of v, the answer to r.
func shape(r *verifier.Request, v *verifier.Verdict) error {
	var errs []error
	switch v.Decision {
	case verifier.Pass, verifier.Fail:
	case verifier.Scored:
		if len(v.Scores) == 0 {
			errs = append(errs, errors.New("decision is scored, and there is no score: nothing can be counted"))
		}
	case verifier.Continue:
		if r.Round == 0 {
			errs = append(errs, errors.New("decision is continue, but there is no round to continue to"))
		}
	default:
		errs = append(errs, fmt.Errorf("decision is %q, which is none of pass, fail, continue, scored", v.Decision))
	}
	for name, score := range v.Scores {
		if name == "" {
			errs = append(errs, errors.New("a score has no name"))
		}
		if err := score.Valid(); err != nil {
			errs = append(errs, fmt.Errorf("score %q: %w", name, err))
		}
	}
	for i := range v.Findings {
		f := &v.Findings[i]
		switch f.Severity {
		case verifier.Note, verifier.Exposed, verifier.Violated:
		default:
			errs = append(errs, fmt.Errorf("finding %q has severity %q", f.Code, f.Severity))
		}
		if f.Code == "" {
			errs = append(errs, fmt.Errorf("finding %q has no code", f.Text))
		}
	}
	if err := v.ValidLabels(); err != nil {
		errs = append(errs, err)
	}
	for i := range v.Checkpoints {
		if v.Checkpoints[i].Name == "" {
			errs = append(errs, fmt.Errorf("checkpoint %d has no name", i+1))
		}
	}
	return errors.Join(errs...)
}

// got says what a verifier returned, for a failure message: a verdict, an error, or
// a verdict with what is wrong with it.
func got(v verifier.Verdict, err error) string {
	switch {
	case err == nil:
		return pretty(v)
	case v.Decision == "":
		return "the error: " + err.Error()
	default:
		return fmt.Sprintf("%v in %s", err, pretty(v))
	}
}

// pretty returns a verdict as text for a failure message.
func pretty(v verifier.Verdict) string {
	b, err := json.Marshal(v)
	if err != nil { // a NaN
		return fmt.Sprintf("%+v", v)
	}
	return string(b)
}
