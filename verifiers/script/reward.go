package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/number"
	"github.com/berth-eval/berth/plugins/verifier"
)

// Bounds of a reward file. It is written by a program that the agent may have
// changed, so it is untrusted input.
const (
	maxReward = 64 << 10 // bytes
	maxScores = 256
	maxName   = 128 // bytes of a score's name
)

// bad makes an ErrBadReward.
func bad(format string, a ...any) error {
	return fmt.Errorf("%w: %s", verifier.ErrBadReward, fmt.Sprintf(format, a...))
}

// decimal returns the finite value of text. Numbers in other forms, such as 0,5, are
// not numbers for other readers of the same file.
func decimal(text string) (float64, error) {
	v, ok := number.Decimal(text)
	if !ok {
		return 0, bad("%.60q is not a decimal number, such as 0.5", text)
	}
	return v, nil
}

// numberFile reads a file with one number, the score called name.
func numberFile(data []byte, name string) (map[string]float64, error) {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return nil, bad("it is empty")
	}
	v, err := decimal(text)
	if err != nil {
		return nil, err
	}
	return map[string]float64{name: v}, nil
}

// jsonFile reads a file with one object of names to finite numbers, or to
// booleans, which count as 1 and 0.
func jsonFile(data []byte) (map[string]float64, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, bad("it is empty")
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, bad("want an object of names to numbers, got %.60q", bytes.TrimSpace(data))
	}
	scores := map[string]float64{}
	for d.More() {
		name, value, err := member(d)
		if err != nil {
			return nil, err
		}
		if old, twice := scores[name]; twice && old != value {
			return nil, bad("score %q is there twice, as %g and %g", name, old, value)
		}
		scores[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, bad("it is not JSON: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("something follows the object")
	}
	switch {
	case len(scores) == 0:
		return nil, bad("the object is empty: there is no score in it")
	case len(scores) > maxScores:
		return nil, bad("%d scores, the limit is %d", len(scores), maxScores)
	}
	return scores, nil
}

// member reads one name and its value.
func member(d *json.Decoder) (string, float64, error) {
	t, err := d.Token()
	if err != nil {
		return "", 0, bad("it is not JSON: %v", err)
	}
	name, ok := t.(string)
	if !ok || name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", 0, bad("%.60q cannot be the name of a score", fmt.Sprint(t))
	}
	if t, err = d.Token(); err != nil {
		return "", 0, bad("score %q: it is not JSON: %v", name, err)
	}
	switch t := t.(type) {
	case json.Number:
		v, err := decimal(t.String())
		if err != nil {
			return "", 0, fmt.Errorf("score %q: %w", name, err)
		}
		return name, v, nil
	case bool:
		if t {
			return name, 1, nil
		}
		return name, 0, nil
	default:
		return "", 0, bad("score %q is neither a number nor true nor false", name)
	}
}

// difference returns what differs between the scores that both files have, of which
// a counts; empty: nothing.
func difference(a, b map[string]float64) string {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if other, both := b[name]; both && other != a[name] {
			return fmt.Sprintf("score %q is %g in the first and %g in the second", name, a[name], other)
		}
	}
	return ""
}
