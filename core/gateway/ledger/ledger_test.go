package ledger

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

func limit(usd float64) Limit { return Limit{USD: &usd} }

func TestWhatFitsOnlyLaterWaits(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{USD: 2})
	first, err := l.Reserve(t.Context(), Amount{USD: 6}, a)
	testlevel.Must(t, err)
	done := make(chan error, 1)
	go func() {
		second, late := l.Reserve(context.Background(), Amount{USD: 6}, a)
		if late == nil {
			second.Settle(Amount{USD: 1})
		}
		done <- late
	}()
	select {
	case err = <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	first.Settle(Amount{USD: 1})
	first.Settle(Amount{USD: 5}) // does nothing
	if err = <-done; err != nil {
		t.Error(err)
	}
	if got := a.Settled(); got.USD != 4 {
		t.Errorf("settled %+v", got)
	}
}

func TestWhatNeverFitsIsRefused(t *testing.T) {
	t.Parallel()
	l := New()
	run, attempt := l.Open("run", Limit{}, Amount{}), l.Open("attempt", limit(1), Amount{})
	_, err := l.Reserve(t.Context(), Amount{USD: 1.5, Tokens: 3}, run, attempt)
	var spent *SpentError
	if !errors.As(err, &spent) || spent.Account != attempt || spent.Unit != "USD" || !spent.First {
		t.Fatalf("got %v", err)
	}
	if _, err = l.Reserve(t.Context(), Amount{USD: 1}, run, attempt); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if _, err = l.Reserve(t.Context(), Amount{USD: 1.5}, run, attempt); !errors.As(err, &spent) || spent.First {
		t.Errorf("a request beside another one is not the first: %v", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(1), Amount{})
	if _, err := l.Reserve(t.Context(), Amount{USD: 1}, a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Reserve(ctx, Amount{USD: 1}, a); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestALimitHoldsAtEveryMoment(t *testing.T) {
	t.Parallel()
	l := New()
	n := int64(100)
	a := l.Open("run", Limit{Tokens: &n}, Amount{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				h, err := l.Reserve(context.Background(), Amount{Tokens: 7}, a)
				if err != nil {
					return
				}
				if got := a.Settled().Tokens; got > n {
					t.Errorf("%d tokens are spent", got)
				}
				h.Settle(Amount{Tokens: 3})
			}
		})
	}
	wg.Wait()
	if got := a.Settled().Tokens; got > n || got < n-7 {
		t.Errorf("settled %d of %d", got, n)
	}
}

// Another limit counts at once: also for a request that waits, and for one that would
// have been refused.
func TestALimitIsReplaced(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{})
	if _, err := l.Reserve(t.Context(), Amount{USD: 6}, a); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Reserve(context.Background(), Amount{USD: 6}, a)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.SetLimit(limit(20))
	if err := <-done; err != nil {
		t.Errorf("with a larger limit: %v", err)
	}
	a.SetLimit(limit(3))
	var spent *SpentError
	if _, err := l.Reserve(t.Context(), Amount{USD: 4}, a); !errors.As(err, &spent) || *a.Limit().USD != 3 {
		t.Errorf("with a smaller one: %v", err)
	}
}
