package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// Drift is a plugin or an image that differs from the one used by earlier
// attempts.
type Drift struct {
	What   string `json:"what"` // such as: agent oracle
	Before string `json:"before"`
	After  string `json:"after"`
}

// String returns the drift on one line.
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

// Drifts compares the digests of the plugins and images of the accepted
// attempts with the current ones. The keys are those of store.Brief. It does
// not compare anything without a current digest.
func Drifts(x *store.Index, now map[string]string) []Drift {
	before := madeWith(x)
	var out []Drift
	for _, what := range slices.Sorted(maps.Keys(before)) {
		after, known := now[what]
		if !known || before[what][after] {
			continue
		}
		out = append(out, driftOf(what, before[what], after))
	}
	return out
}

// madeWith returns the digests that the accepted attempts were made with.
func madeWith(x *store.Index) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, t := range x.Trials {
		a := t.Accepted()
		if a == nil || !a.Result.Outcome.Final() {
			continue
		}
		for what, digest := range a.Result.Digests {
			if all[what] == nil {
				all[what] = map[string]bool{}
			}
			all[what][digest] = true
		}
	}
	return all
}

func driftOf(what string, before map[string]bool, after string) Drift {
	return Drift{What: what, Before: strings.Join(slices.Sorted(maps.Keys(before)), ", "), After: after}
}

// comparison is for digests that are known only when an attempt is made: the
// image and the bundles. It is safe for concurrent use.
type comparison struct {
	before map[string]map[string]bool
	accept func(drift string) error // records a drift that the user accepted; nil: the user did not accept drift
	said   sync.Map
}

// compare makes a comparison with the earlier attempts; nil when there are
// none.
func compare(x *store.Index, accept func(string) error) func(*record.Result) error {
	c := &comparison{before: madeWith(x), accept: accept}
	if len(c.before) == 0 {
		return nil
	}
	return c.check
}

func (c *comparison) check(r *record.Result) error {
	now := store.BriefOf(r).Digests
	for _, p := range r.Plugins { // plugins were compared before the run continued
		delete(now, p.Kind+" "+p.Name)
	}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		before := c.before[what]
		if before == nil || before[now[what]] {
			continue
		}
		d := driftOf(what, before, now[what]).String()
		if c.accept == nil {
			return fmt.Errorf("%s: earlier attempts of the run were made with another: bring it back and resume, or resume with --accept-drift, which marks the run", d)
		}
		if _, said := c.said.LoadOrStore(d, true); said {
			continue
		}
		if err := c.accept(d); err != nil {
			return err
		}
	}
	return nil
}
