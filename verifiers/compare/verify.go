package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/untrusted"
	"github.com/berth-eval/berth/plugins/verifier"
	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// scoreName is the score of every verdict, from 0 to 1.
const scoreName = "reward"

// comparator is a verifier with the settings C.
type comparator[C any] struct {
	compare func(given, *C) (outcome, error)
}

// given is what a comparator compares.
type given struct {
	truth     string
	predicted prediction
}

// prediction is a file, or what the agent may have meant as its answer, the
// likeliest first.
type prediction struct {
	texts []string
	file  bool
}

// outcome is the result of a comparison.
type outcome struct {
	score float64
	diffs diff.List
}

// of returns the outcome of a comparison that passes only if nothing differs.
func of(d diff.List, err error) (outcome, error) {
	switch {
	case err != nil:
		return outcome{}, err
	case d.Empty():
		return outcome{score: 1}, nil
	}
	return outcome{diffs: d}, nil
}

// Verify implements verifier.Verifier.
func (c comparator[C]) Verify(ctx context.Context, r verifier.Request, _ func(string)) (v verifier.Verdict, err error) {
	var settings C
	if ps := read(plugins.Settings{JSON: r.Settings, Config: r.Config}, &settings); len(ps) > 0 {
		return v, fmt.Errorf("settings for this verifier: %w", config.Problems(ps))
	}
	has, _ := any(&settings).(interface{ inputs() *Inputs }) // read makes sure
	if _, err = os.Stat(r.View); err != nil {
		return v, fmt.Errorf("view: %w", err)
	}
	in := given{}
	name := ""
	if in.truth, name, err = truth(&r, has.inputs()); err != nil {
		return v, err
	}
	var o outcome
	in.predicted, err = predicted(&r, has.inputs().Prediction)
	if err == nil {
		if err = ctx.Err(); err != nil {
			return v, err
		}
		o, err = c.compare(in, &settings)
	}
	var wrong unusable
	switch {
	case errors.As(err, &wrong):
		o = outcome{}
		o.diffs.Add("%s", wrong.Error())
	case errors.Is(err, document.ErrTruth):
		return v, fmt.Errorf("%s: %w", name, err)
	case err != nil:
		return v, err
	}
	v = verifier.Judge(o.score >= 1, o.diffs.String())
	v.Scores = map[string]verifier.Score{scoreName: verifier.Share(o.score)}
	return v, nil
}

// unusable is why a prediction cannot be compared. It is the agent's fault, so it
// is a verdict.
type unusable string

// Error implements error.
func (u unusable) Error() string { return string(u) }

// truth returns the text of the ground truth, and its name for errors.
func truth(r *verifier.Request, in *Inputs) (text, name string, err error) {
	name, written := in.file()
	if written {
		return string(in.Truth), "truth in the settings", nil
	}
	data, err := r.ReadFile(path.Clean(name), document.MaxBytes)
	if err != nil { // the task's fault, so it is not a missing artifact
		return "", "", fmt.Errorf("ground truth: %v", err) //nolint:errorlint // see above
	}
	return string(data), name, nil
}

// predicted returns what is compared with the ground truth.
func predicted(r *verifier.Request, name string) (p prediction, err error) {
	if name == "answer" {
		p.texts, err = answers(r)
		return p, err
	}
	name = path.Clean(name)
	if entries, listed := untrusted.Dir(r.View, name, 1000); listed == nil {
		if len(entries) != 1 {
			return p, unusable(fmt.Sprintf("%s is a folder with %d files, and only a single one can be compared", name, len(entries)))
		}
		name = path.Join(name, entries[0].Name())
	}
	data, err := r.ReadFile(name, document.MaxBytes)
	if errors.Is(err, verifier.ErrArtifactMissing) {
		return p, err
	}
	if err != nil {
		return p, unusable(err.Error())
	}
	return prediction{texts: []string{string(data)}, file: true}, nil
}

// value returns the JSON of a prediction.
func (p *prediction) value() (any, error) {
	for _, text := range p.texts {
		if p.file {
			if v, ok := document.FromFile(text); ok {
				return document.Merged(v), nil
			}
		} else if o, ok := document.FromAnswer(text); ok {
			return o, nil
		}
	}
	switch {
	case len(p.texts) == 0:
		return nil, unusable("the agent gave no answer")
	case p.file:
		return nil, unusable("there is no JSON in the prediction, which begins with " + document.Show(p.texts[0]))
	}
	return nil, unusable("there is no JSON object in the answer, which begins with " + document.Show(p.texts[0]))
}
