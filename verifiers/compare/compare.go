package main

import (
	"github.com/berth-eval/berth/verifiers/compare/internal/circuit"
	"github.com/berth-eval/berth/verifiers/compare/internal/diff"
	"github.com/berth-eval/berth/verifiers/compare/internal/document"
	"github.com/berth-eval/berth/verifiers/compare/internal/fields"
	"github.com/berth-eval/berth/verifiers/compare/internal/graph"
	"github.com/berth-eval/berth/verifiers/compare/internal/scene"
	"github.com/berth-eval/berth/verifiers/compare/internal/timeline"
)

// parsed returns the JSON of a ground truth.
func (g *given) parsed() (any, error) {
	v, err := document.Parse(g.truth)
	if err != nil {
		return nil, document.BadTruth("it is not JSON: %v", err)
	}
	return v, nil
}

// both returns the JSON of the ground truth and of the prediction.
func (g *given) both() (truth, predicted any, err error) {
	if truth, err = g.parsed(); err != nil {
		return nil, nil, err
	}
	predicted, unread := g.predicted.value()
	if truth, err = document.Unwrapped(truth, predicted); err != nil {
		return nil, nil, err
	}
	return truth, predicted, unread
}

func compareFields(g given, c *FieldsConfig) (outcome, error) {
	return answer(g, fields.Settings{
		Relative: c.RelativeTolerance, Absolute: c.ToleranceFields, Unordered: c.UnorderedObjectKeys, Minutes: c.TimeMinutes,
	})
}

// answer compares fields.
func answer(g given, s fields.Settings) (outcome, error) {
	truth, err := g.parsed()
	if err != nil {
		return outcome{}, err
	}
	predicted, unread := g.predicted.value()
	object, ok := predicted.(document.Object)
	d, err := fields.Compare(truth, object, s)
	switch {
	case err != nil:
		return outcome{}, err
	case unread != nil:
		return outcome{}, unread
	case !ok:
		return outcome{}, unusable("the prediction is not an object of fields: " + document.Show(predicted))
	}
	return of(d, nil)
}

// whole compares documents.
func whole(g given, compare func(truth, predicted any) (diff.List, error)) (outcome, error) {
	truth, predicted, err := g.both()
	if err != nil {
		return outcome{}, err
	}
	return of(compare(truth, predicted))
}

func compareTimeline(g given, c *TimelineConfig) (outcome, error) {
	return whole(g, func(truth, predicted any) (diff.List, error) { return timeline.Compare(truth, predicted, c.TimeMs) })
}

func compareGraph(g given, _ *Inputs) (outcome, error) { return whole(g, graph.Compare) }

func compareScene(g given, c *SceneConfig) (outcome, error) {
	return whole(g, func(truth, predicted any) (diff.List, error) { return scene.Compare(truth, predicted, c.Tolerance) })
}

func compareCircuit(g given, c *CircuitConfig) (outcome, error) {
	expected, ok, err := g.circuit()
	if err != nil {
		return outcome{}, err
	}
	if !ok {
		return answer(g, fields.Settings{Relative: &c.RelativeTolerance, Minutes: -1})
	}
	want, err := circuit.Read(expected)
	if err != nil {
		return outcome{}, document.BadTruth("%v", err)
	}
	drawn, ok := g.predicted.circuit()
	if !ok {
		return outcome{}, unusable("there is no circuit in the prediction")
	}
	got, err := circuit.Read(drawn)
	if err != nil {
		return outcome{}, unusable("the circuit cannot be evaluated: " + err.Error())
	}
	var o outcome
	o.score, o.diffs = circuit.Compare(want, got)
	return o, nil
}

// circuit returns the circuit that a ground truth is. ok is false if it has fields
// instead.
func (g *given) circuit() (text string, ok bool, err error) {
	if circuit.Is(g.truth) {
		return g.truth, true, nil
	}
	v, err := g.parsed()
	if err != nil {
		return "", false, err
	}
	text, ok = v.(string)
	if !ok {
		text, ok = document.Get(document.Merged(v), "answer").(string)
	}
	return text, ok && circuit.Is(text), nil
}

// circuit returns the circuit in a prediction: the whole text, a JSON text, a text
// of a JSON object, or what stands between other text.
func (p *prediction) circuit() (string, bool) {
	for _, text := range p.texts {
		if circuit.Is(text) {
			return text, true
		}
		v, err := document.Parse(text)
		if err != nil && !p.file {
			if o, ok := document.FromAnswer(text); ok {
				v = o
			}
		}
		if found, ok := within(v); ok {
			return found, true
		}
		if sent, ok := document.Sent(text); ok && !p.file {
			text = sent
		}
		if found, ok := circuit.Find(text); ok {
			return found, true
		}
	}
	return "", false
}

// within returns the circuit in a JSON text, or in a text of an object, that under
// answer first.
func within(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		if inner, err := document.Parse(v); err == nil {
			if _, again := inner.(string); !again {
				return within(inner)
			}
		}
		return circuit.Find(v)
	case document.Object:
		for _, key := range append([]string{"answer"}, document.Keys(v)...) {
			if text, ok := v[key].(string); ok {
				if found, ok := circuit.Find(text); ok {
					return found, true
				}
			}
		}
	}
	return "", false
}
