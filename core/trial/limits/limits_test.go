package limits_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/trial/limits"
)

func TestADeadlineNamesItsSetting(t *testing.T) {
	t.Parallel()
	const tests = "the tests were"
	for _, tt := range []struct {
		key, want     string
		asks, instead time.Duration
		factor        float64
	}{
		{key: "verifier.timeout_sec", asks: 3 * time.Second, want: "the tests were stopped after 3 s (verifier.timeout_sec)"},
		{asks: 1500 * time.Millisecond, want: "the tests were stopped after 1.5 s (time limit of the task)"},
		{key: "a", asks: time.Minute, instead: time.Hour, want: "the tests were stopped after 1h0m0s (verifier_time)"},
		{key: "a", asks: time.Second, factor: 2, want: "the tests were stopped after 2 s (a, 1 s, times time_factor)"},
	} {
		limit := max(tt.instead, tt.asks*time.Duration(max(tt.factor, 1)))
		d := limits.Deadline{What: tests, Limit: limit, Setting: limits.Setting(tt.key, tt.asks, "verifier_time", tt.instead, tt.factor)}
		if d.Error() != tt.want || !errors.Is(d, context.DeadlineExceeded) {
			t.Errorf("%q, want %q", d, tt.want)
		}
	}
	if s := limits.Setting("a", 0, "b", 0, 2); s != "" {
		t.Errorf("no time comes from %q", s)
	}
}

func TestCausedKeepsBothReasons(t *testing.T) {
	t.Parallel()
	why, what := errors.New("the sandbox is gone"), errors.New("connection broke")
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := limits.Caused(ctx, what); !errors.Is(err, what) {
		t.Errorf("before the end: %v", err)
	}
	cancel(why)
	for _, err := range []error{what, context.Canceled, why} {
		if got := limits.Caused(ctx, err); !errors.Is(got, why) || (errors.Is(err, what) && !errors.Is(got, what)) {
			t.Errorf("Caused(%v) = %v", err, got)
		}
	}
	if err := limits.Caused(ctx, nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}
