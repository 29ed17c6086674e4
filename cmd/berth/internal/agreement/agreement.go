// Package agreement compares an attempt with its replay: outcome, scores, the
// agent's tool calls and the requests to models.
//
// It must not run anything.
package agreement

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of what is read of an attempt, in bytes.
const (
	maxLine = 64 << 20
	maxFile = 4 << 30
	shown   = 160 // of a value in a difference
)

// Difference says where an attempt and its replay differ first, by what is compared.
// A field is empty if they agree.
type Difference struct{ Outcome, Scores, ToolCalls, Requests string }

// Texts returns the differences, one for each kind.
func (d *Difference) Texts() []string {
	return slices.DeleteFunc([]string{d.Outcome, d.Scores, d.ToolCalls, d.Requests}, func(s string) bool { return s == "" })
}

// Compare compares the attempts in two folders, the recorded one first.
func Compare(was, is string) (Difference, error) {
	var d Difference
	a, err := store.ReadResult(was)
	if err != nil {
		return d, err
	}
	b, err := store.ReadResult(is)
	if err != nil {
		return d, err
	}
	if a.Outcome != b.Outcome {
		d.Outcome = fmt.Sprintf("outcome: recorded %s, replayed %s", a.Outcome, b.Outcome)
		if b.Error != nil {
			d.Outcome += " (" + cut(b.Error.Message) + ")"
		}
	}
	names := map[string]float64{}
	maps.Copy(names, a.Scores)
	maps.Copy(names, b.Scores)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, hadX := a.Scores[name]
		y, hadY := b.Scores[name]
		if x != y || hadX != hadY {
			d.Scores = fmt.Sprintf("score %s: recorded %s, replayed %s", name, value(x, hadX), value(y, hadY))
			break
		}
	}
	if d.ToolCalls, err = called(was, is); err != nil {
		return d, err
	}
	d.Requests, err = requested(was, is, b)
	return d, err
}

func value(v float64, had bool) string {
	if !had {
		return "none"
	}
	return fmt.Sprintf("%g", v)
}

// called compares the tool calls of two attempts, in order.
func called(was, is string) (string, error) {
	a, err := toolCalls(was)
	if err != nil {
		return "", err
	}
	b, err := toolCalls(is)
	if err != nil {
		return "", err
	}
	at := func(calls []string, i int) string {
		if i < len(calls) {
			return cut(calls[i])
		}
		return "none"
	}
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("tool call %d: recorded %s, replayed %s", i+1, at(a, i), at(b, i)), nil
		}
	}
	return "", nil
}

// toolCalls returns the tool calls of an attempt, except those of the simulated user.
func toolCalls(dir string) (calls []string, err error) {
	_, err = untrusted.Lines(dir, record.StepsFile, maxLine, maxFile, func(line []byte) {
		var s record.Step
		if json.Unmarshal(line, &s) != nil || s.Role == "user" {
			return
		}
		for _, c := range s.Step.ToolCalls {
			var compact bytes.Buffer
			if json.Compact(&compact, c.Arguments) != nil {
				compact.Write(c.Arguments)
			}
			calls = append(calls, c.Name+" "+compact.String())
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return calls, err
}

// request is what identifies a request that had an effect.
type request struct {
	Role  string          `json:"role"`
	Name  string          `json:"name"`
	Match string          `json:"match"`
	Alike bool            `json:"alike"` // it differs from the recorded one in values that change from run to run only
	Retry bool            `json:"retry"`
	Usage json.RawMessage `json:"usage"`
}

// requests returns the requests of an attempt in order, by who asked for which model:
// different roles may ask at the same time.
func requests(dir string) (map[string][]request, error) {
	out := map[string][]request{}
	_, err := untrusted.Lines(dir, record.ExchangesFile, maxLine, maxFile, func(line []byte) {
		var x request
		if json.Unmarshal(line, &x) == nil && x.Usage != nil && !x.Retry {
			of := x.Role + " to model " + x.Name
			out[of] = append(out[of], x)
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	return out, err
}

// requested compares the requests of two attempts.
func requested(was, is string, replayed *record.Result) (string, error) {
	a, err := requests(was)
	if err != nil {
		return "", err
	}
	b, err := requests(is)
	if err != nil {
		return "", err
	}
	for _, of := range slices.Sorted(maps.Keys(a)) {
		for i := range max(len(a[of]), len(b[of])) {
			if i < len(a[of]) && i < len(b[of]) && (b[of][i].Alike || a[of][i].Match == b[of][i].Match) {
				continue
			}
			text := fmt.Sprintf("request %d of %s: recorded %d requests, replayed %d, and this one differs", i+1, of, len(a[of]), len(b[of]))
			for _, f := range replayed.Findings {
				if f.Code == "replay_differs" {
					return text + ": " + f.Text, nil
				}
			}
			return text, nil
		}
	}
	for of := range b {
		if len(a[of]) == 0 {
			return fmt.Sprintf("%s: recorded no requests, replayed %d", of, len(b[of])), nil
		}
	}
	return "", nil
}

// cut shortens a text.
func cut(s string) string {
	if len(s) > shown {
		return fmt.Sprintf("%.*q…", shown, s)
	}
	return s
}
