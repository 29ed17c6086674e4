package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/store"
)

// Drift is a plugin or an image that is not what the attempts so far were made
// with.
type Drift struct {
	What   string `json:"what"` // such as: agent oracle
	Before string `json:"before"`
	After  string `json:"after"`
}

// String is the drift on one line.
func (d Drift) String() string {
	return fmt.Sprintf("%s: %s → %s", d.What, short(d.Before), short(d.After))
}

func short(digest string) string {
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok || len(hex) < 12 {
		return digest
	}
	return algorithm + ":" + hex[:12]
}

// Drifts compares what the accepted attempts were made with to what is there
// now: digests by what they are of, as in store.Brief. What is not known now is
// not compared.
func Drifts(x *store.Index, now map[string]string) []Drift {
	before := map[string]map[string]bool{}
	for _, t := range x.Trials {
		a := t.Accepted()
		if a == nil || !a.Result.Outcome.Final() {
			continue
		}
		for what, digest := range a.Result.Digests {
			if before[what] == nil {
				before[what] = map[string]bool{}
			}
			before[what][digest] = true
		}
	}
	var out []Drift
	for _, what := range slices.Sorted(maps.Keys(before)) {
		after, known := now[what]
		if !known || before[what][after] {
			continue
		}
		out = append(out, Drift{What: what, Before: strings.Join(slices.Sorted(maps.Keys(before[what])), ", "), After: after})
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
