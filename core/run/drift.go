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
	return fmt.Sprintf("%s: %s → %s", d.What, ShortDigest(d.Before), ShortDigest(d.After))
}

// ShortDigest returns the beginning of a digest, for people.
func ShortDigest(digest string) string {
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

// compare returns a check of the digests that are known only when an attempt is made,
// those of the image and the bundles, against the earlier attempts; nil when there
// are none. accept records a drift that the user accepted; nil: the user accepts none.
// The check is safe for concurrent use.
func compare(x *store.Index, accept func(drift string) error) func(*record.Result) error {
	all := madeWith(x)
	if len(all) == 0 {
		return nil
	}
	var said sync.Map
	return func(r *record.Result) error {
		now := store.BriefOf(r).Digests
		for _, p := range r.Plugins { // plugins were compared before the run continued
			delete(now, p.Kind+" "+p.Name)
		}
		for _, what := range slices.Sorted(maps.Keys(now)) {
			before := all[what]
			if before == nil || before[now[what]] {
				continue
			}
			d := driftOf(what, before, now[what]).String()
			if accept == nil {
				return fmt.Errorf("%s: earlier attempts of the run were made with another: bring it back and resume, or resume with --accept-drift, which marks the run", d)
			}
			if _, known := said.LoadOrStore(d, true); known {
				continue
			}
			if err := accept(d); err != nil {
				return err
			}
		}
		return nil
	}
}
