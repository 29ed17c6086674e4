package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/plugins/verifier"
)

// pair is two consecutive pictures of the record.
type pair struct {
	before, after *sight

	RMSE         float64 `json:"rmse"`
	Changed      float64 `json:"changed"`
	Significance float64 `json:"significance"` // 1: one of the differences is just enough
}

// The differences of which the significance is made, whatever the settings.
const (
	usualRMSE    = 0.03
	usualChanged = 0.01
)

// decoding bounds the pictures that are decoded at once, by all attempts: a large
// one takes 128 MiB, and twice as much with 16 bits a channel.
var decoding = make(chan struct{}, 2)

// small makes the grey copy of a picture.
func small(ctx context.Context, r *verifier.Request, s *sight) (*grey, error) {
	data, err := picture(r, &s.Frame)
	if err != nil {
		return nil, err
	}
	select {
	case decoding <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-decoding }()
	return readGrey(data, s.Frame.MediaType)
}

// pairs returns the pairs that differ enough, in their order, and what is to be said
// about those that could not be compared or are too many.
func pairs(ctx context.Context, r *verifier.Request, c *Config, sights []sight) (kept []pair, notes []string, err error) {
	if c.MaxPairs == 0 { // only the last picture is to be judged
		return nil, nil, nil
	}
	var before *grey // nil: there is none, or it cannot be read
	for i := range sights {
		now := &sights[i]
		if i > 0 && !now.First && now.Frame.File == sights[i-1].Frame.File && now.Frame.File != "" {
			continue // equal pictures are one file
		}
		s, unread := small(ctx, r, now)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if unread != nil {
			notes = append(notes, fmt.Sprintf("the picture after step %d cannot be compared: %v", now.Step, unread))
		}
		if s != nil && before != nil && !now.First {
			if p := compare(before, s); p.enough(c) {
				p.before, p.after = &sights[i-1], now
				kept = append(kept, p)
			}
		}
		before = s
	}
	if n := len(kept); n > c.MaxPairs {
		notes = append(notes, fmt.Sprintf("%d pairs of pictures differ, and the %d that differ most are looked at", n, c.MaxPairs))
		order := slices.Clone(kept)
		slices.SortStableFunc(order, func(a, b pair) int { return cmp.Compare(b.Significance, a.Significance) })
		of := map[*sight]bool{}
		for _, p := range order[:c.MaxPairs] {
			of[p.after] = true
		}
		kept = slices.DeleteFunc(kept, func(p pair) bool { return !of[p.after] })
	}
	return kept, notes, nil
}

func compare(a, b *grey) pair {
	rmse, changed := difference(a, b)
	return pair{RMSE: rmse, Changed: changed, Significance: max(rmse/usualRMSE, changed/usualChanged)}
}

// enough reports whether a pair is looked at.
func (p *pair) enough(c *Config) bool {
	return p.RMSE >= c.RMSE || p.Changed >= c.Changed
}
