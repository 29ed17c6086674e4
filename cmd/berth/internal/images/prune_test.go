package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins/environment"
)

func TestWhatARuleDoesNotKeepIsPickedNewestFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	ago := func(h int) time.Time { return now.Add(-time.Duration(h) * time.Hour) }
	// In no order; used is in use; the time of use of when is not known.
	all := []environment.KeptImage{
		{Ref: "old", Used: ago(100), SizeMiB: 100},
		{Ref: "new", Used: ago(1), SizeMiB: 100},
		{Ref: "used", Used: ago(200), SizeMiB: 100, InUse: true},
		{Ref: "day", Used: ago(24), SizeMiB: 300},
		{Ref: "when", SizeMiB: 1},
	}
	for _, tt := range []struct {
		name   string
		within time.Duration
		want   string
	}{
		{"none", 0, "new day old when"},
		{"by time, and not what may be new", 30 * time.Hour, "old"},
		{"all", 1000 * time.Hour, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, im := range pick(all, tt.within, now) {
				got = append(got, im.Ref)
			}
			if want := strings.Fields(tt.want); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// keeper has three images. One cannot be removed, and one comes into use
// between the two calls.
type keeper struct {
	environment.Environment

	dropped []string
}

func (*keeper) Kept(context.Context) ([]environment.KeptImage, error) {
	return []environment.KeptImage{{Ref: "good", SizeMiB: 7}, {Ref: "bad"}, {Ref: "late"}}, nil
}

func (k *keeper) Drop(_ context.Context, ref string) (bool, error) {
	k.dropped = append(k.dropped, ref)
	if ref == "bad" {
		return false, errors.New("the engine says no")
	}
	return ref == "good", nil
}

func TestWhatIsRemovedIsSaidAndADryRunRemovesNothing(t *testing.T) {
	t.Parallel()
	for _, dry := range []bool{true, false} {
		k, res := &keeper{}, &Pruned{}
		p := &pruning{0, dry, res}
		if err := p.of(t.Context(), "it", k); err != nil {
			t.Fatal(err)
		}
		removed, kept, problems, asked := 1, 2, 1, 3
		if dry {
			removed, kept, problems, asked = 3, 0, 0, 0
		}
		if len(res.Removed) != removed || res.Removed[0] != (output.GCImage{Environment: "it", Ref: "good", SizeMiB: 7}) || res.Kept != kept || len(res.Problems) != problems || len(k.dropped) != asked {
			t.Errorf("dry %v: %+v; asked to drop %q", dry, res, k.dropped)
		}
	}
}
