package dialect

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, 0},
		{[]string{"Retry-After", "7"}, 7 * time.Second},
		{[]string{"Retry-After", "0.5"}, 500 * time.Millisecond},
		{[]string{"Retry-After", "274579"}, 274579 * time.Second},
		{[]string{"Retry-After", "1e300"}, longestWait},
		{[]string{"Retry-After", "-1"}, 0},
		{[]string{"Retry-After", "NaN"}, 0},
		{[]string{"Retry-After", "soon"}, 0},
		{[]string{"Retry-After", now.Add(30 * time.Second).UTC().Format(http.TimeFormat)}, 30 * time.Second},
		{[]string{"Retry-After-Ms", "2500", "Retry-After", "3"}, 2500 * time.Millisecond},
	} {
		h := http.Header{}
		for i := 0; i < len(tt.headers); i += 2 {
			h.Set(tt.headers[i], tt.headers[i+1])
		}
		// A date has whole seconds, and time passes.
		if got := RetryAfter(h); got > tt.want || tt.want-got > 5*time.Second && tt.want != longestWait {
			t.Errorf("RetryAfter(%v) = %s, want %s", h, got, tt.want)
		}
	}
}

func TestRoughly(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"1 s": 0, "89 s": 89 * time.Second, "10 min": 10 * time.Minute, "2 h 5 min": 125 * time.Minute, "3 d 4 h": 274579 * time.Second,
	} {
		if got := Roughly(d); got != want {
			t.Errorf("Roughly(%s) = %q, want %q", d, got, want)
		}
	}
}
