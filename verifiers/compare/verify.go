package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

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
	var config C
	if err = read(&r, &config); err != nil {
		return v, err
	}
	has, ok := any(&config).(interface{ inputs() *Inputs })
	if !ok {
		return v, fmt.Errorf("bug: %T has no inputs", config)
	}
	if _, err = os.Stat(r.View); err != nil {
		return v, fmt.Errorf("view: %w", err)
	}
	in := given{}
	name := ""
	if in.truth, name, err = truth(&r, has.inputs().Truth); err != nil {
		return v, err
	}
	var o outcome
	in.predicted, err = predicted(&r, has.inputs().Prediction)
	if err == nil {
		if err = ctx.Err(); err != nil {
			return v, err
		}
		o, err = c.compare(in, &config)
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
	least, most := 0.0, 1.0
	v = verifier.Judge(o.score >= 1, o.diffs.String())
	v.Scores = map[string]verifier.Score{scoreName: {Value: o.score, Min: &least, Max: &most}}
	return v, nil
}

// unusable is why a prediction cannot be compared. It is the agent's fault, so it
// is a verdict.
type unusable string

// Error implements error.
func (u unusable) Error() string { return string(u) }

// truth returns the text of the ground truth, and its name for errors.
func truth(r *verifier.Request, setting json.RawMessage) (text, name string, err error) {
	if setting = bytes.TrimSpace(setting); len(setting) == 0 {
		return "", "", errors.New("settings for this verifier: truth is required: write the path of the ground truth in the view, or the JSON itself")
	}
	if setting[0] != '"' {
		return string(setting), "truth in the settings", nil
	}
	if err = json.Unmarshal(setting, &name); err != nil {
		return "", "", fmt.Errorf("settings for this verifier: truth: %w", err)
	}
	if clean := path.Clean(name); clean == "attempt" || strings.HasPrefix(clean, "attempt/") || path.IsAbs(clean) || strings.HasPrefix(clean, "..") {
		return "", "", fmt.Errorf("settings for this verifier: truth is %q: it must be a file of the task, such as references/truth.json, and none of the attempt", name)
	}
	data, err := r.ReadFile(path.Clean(name), document.MaxBytes)
	if err != nil { // the task's fault, so it is no missing artifact
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
	if !strings.HasPrefix(name, "attempt/") {
		return p, fmt.Errorf("settings for this verifier: prediction is %q: write answer, or the path of a file below attempt/", name)
	}
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
