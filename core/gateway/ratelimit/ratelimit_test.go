package ratelimit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

func quick(o Options) *Limiter {
	o.First, o.Longest = time.Millisecond, 4*time.Millisecond
	return New(o)
}

func acquire(ctx context.Context, p *Limiter) (*Turn, error) {
	_, turn, err := Any(ctx, p)
	return turn, err
}

func TestTheLimitFallsOnceForAllThatBeganUnderIt(t *testing.T) {
	t.Parallel()
	p := quick(Options{})
	var turns []*Turn
	for range usualStart {
		turn, err := acquire(t.Context(), p)
		testlevel.Must(t, err)
		turns = append(turns, turn)
	}
	for _, turn := range turns {
		turn.Done(Limited, 0, "no")
		turn.Done(Limited, 0, "no") // does nothing
	}
	if s := p.State(); s.Limit != usualStart/2 || p.inFlight != 0 {
		t.Errorf("state %+v", s)
	}
}

func TestNothingBeginsBeforeTheProviderSays(t *testing.T) {
	t.Parallel()
	p := quick(Options{})
	turn, err := acquire(t.Context(), p)
	testlevel.Must(t, err)
	turn.Done(Limited, 60*time.Millisecond, "no")
	begin := time.Now()
	if turn, err = acquire(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begin); waited < 50*time.Millisecond { // the promise: not before the provider says
		t.Errorf("waited %s of 60 ms", waited)
	}
	turn.Done(Served, 0, "")
	if s := p.State(); s.Failing != 0 {
		t.Errorf("state %+v", s)
	}
}

// A provider that takes four requests at a time is served four, and a client of
// it is refused seldom; when it takes more again, it gets more.
func TestTheLimitFindsWhatTheProviderTakes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	least, told := 1<<30, 0
	p := quick(Options{Max: 32, Tell: func(s State) {
		mu.Lock()
		defer mu.Unlock()
		least = min(least, s.Limit)
		told++
	}})
	capacity, under, refused, served := 4, 0, 0, 0
	one := func() {
		for {
			turn, err := acquire(context.Background(), p)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			under++
			ok := under <= capacity
			mu.Unlock()
			time.Sleep(time.Millisecond) // so that requests overlap
			mu.Lock()
			under--
			if ok {
				served++
			} else {
				refused++
			}
			if served == 200 {
				capacity = 1000
			}
			mu.Unlock()
			if ok {
				turn.Done(Served, 0, "")
				return
			}
			turn.Done(Limited, 0, "no")
		}
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 60 {
				one()
			}
		})
	}
	wg.Wait()
	if least > 5 || refused > served/2 {
		t.Errorf("the limit fell to %d; %d refused, %d served", least, refused, served)
	}
	if s := p.State(); s.Limit < 20 || s.Failing != 0 {
		t.Errorf("it did not come back: %+v, told %d times", s, told)
	}
}

func TestAProviderThatFailsForTooLongIsGivenUp(t *testing.T) {
	t.Parallel()
	p := quick(Options{GiveUpAfter: 20 * time.Millisecond})
	for deadline := time.Now().Add(time.Minute); !p.GivenUp(); {
		turn, err := acquire(t.Context(), p)
		if err != nil || time.Now().After(deadline) {
			t.Fatal("it is not given up", err)
		}
		turn.Done(Failed, 0, "no")
	}
	turn, err := acquire(t.Context(), p)
	testlevel.Must(t, err)
	if turn.Done(Served, 0, ""); p.GivenUp() {
		t.Error("a success does not bring it back")
	}
}
