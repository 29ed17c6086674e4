package trial_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

// busy is a machine where the place to verify is free only after a while.
type busy struct {
	after time.Duration
	waits func() // is called when an attempt begins to wait; nil: nothing is

	mu   sync.Mutex
	said []string
}

func (b *busy) say(what string, p trial.Part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, fmt.Sprintf("%s %d", what, p))
}

func (b *busy) Try(p trial.Part) bool {
	b.say("try", p)
	return p != trial.Verifying
}

func (b *busy) Enter(ctx context.Context, p trial.Part) error {
	b.say("enter", p)
	if p != trial.Verifying {
		return nil
	}
	if b.waits != nil {
		b.waits()
	}
	select {
	case <-time.After(b.after):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestAProcessThatIsLeftDoesNotWorkWhileItWaits has an agent that leaves a process
// running, which would have finished its work if the wait for the verification
// counted.
func TestAProcessThatIsLeftDoesNotWorkWhileItWaits(t *testing.T) {
	t.Parallel()
	places := &busy{after: 3 * time.Second}
	b := newBench(t, does("(setsid sh -c 'for i in $(seq 60); do sleep 0.1; done; echo done > /app/x' >/dev/null 2>&1 &)"), tests("test ! -e /app/x"))
	b.task.Mode = task.ModeLive
	in := b.input()
	in.Places = places
	r, err := trial.Run(t.Context(), in)
	testlevel.Must(t, err)
	want(t, r, record.Passed, record.Yielded, record.Exposed)
	if want := []string{"enter 2", "try 3", "enter 3"}; !slices.Equal(places.said, want) {
		t.Errorf("it entered %q, want %q", places.said, want)
	}
	var frozen time.Duration // since the attempt began
	for _, p := range r.Phases {
		if p.Name == record.PhaseFreeze && p.Turn == 1 {
			frozen = p.Start.Sub(r.Phases[0].Start)
		}
	}
	if r.AgentTime > frozen {
		t.Errorf("the wait is charged to the agent (%s), or nothing was frozen: %s", r.AgentTime, pretty(r.Phases))
	}
}

func TestAnAttemptThatIsCancelledWhileItWaitsForItsVerification(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("true"), tests("true"))
	in := b.input()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in.Places = &busy{after: time.Hour, waits: cancel}
	r, err := trial.Run(ctx, in)
	testlevel.Must(t, err)
	want(t, r, record.Cancelled, record.Yielded, record.Unknown)
}
