package ledger

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/internal/testlevel"
)

func limit(usd float64) cell.Budget { return cell.Budget{CostUSD: &usd} }

func TestWhatFitsOnlyLaterWaits(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{USD: 2})
	who := &Attempt{}
	first, err := l.Reserve(t.Context(), Amount{USD: 6}, who, a)
	testlevel.Must(t, err)
	done := make(chan error, 1)
	go func() {
		second, late := l.Reserve(context.Background(), Amount{USD: 6}, &Attempt{}, a)
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
	l.End(who, a)
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
	run, attempt := l.Open("run", cell.Budget{}, Amount{}), l.Open("attempt", limit(1), Amount{})
	who := &Attempt{}
	_, err := l.Reserve(t.Context(), Amount{USD: 1.5, Tokens: 3}, who, run, attempt)
	var spent *SpentError
	if !errors.As(err, &spent) || spent.Account != attempt || spent.Unit != "USD" || !spent.First {
		t.Fatalf("got %v", err)
	}
	if _, err = l.Reserve(t.Context(), Amount{USD: 1}, who, run, attempt); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if _, err = l.Reserve(t.Context(), Amount{USD: 1.5}, who, run, attempt); !errors.As(err, &spent) || spent.First {
		t.Errorf("a request beside another one is not the first: %v", err)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(1), Amount{})
	if _, err := l.Reserve(t.Context(), Amount{USD: 1}, &Attempt{}, a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Reserve(ctx, Amount{USD: 1}, &Attempt{}, a); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestALimitHoldsAtEveryMoment(t *testing.T) {
	t.Parallel()
	l := New()
	n := int64(100)
	a := l.Open("run", cell.Budget{Tokens: &n}, Amount{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			who := &Attempt{}
			defer l.End(who, a)
			for range 20 {
				h, err := l.Reserve(context.Background(), Amount{Tokens: 7}, who, a)
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

// A budget of 10 pays for three attempts of three requests, which cost 1 each and
// could cost 3. What has begun goes on; nothing else begins until it has ended.
func TestWhatHasBegunGoesFirst(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{})
	need, first, second := Amount{USD: 3}, &Attempt{}, &Attempt{}
	pay := func(who *Attempt) {
		t.Helper()
		h, err := l.Reserve(t.Context(), need, who, a)
		testlevel.Must(t, err)
		h.Settle(Amount{USD: 1})
	}
	pay(first)
	pay(second) // 2 are spent, 6 are kept: no room for a third attempt
	third := make(chan error, 1)
	go func() {
		_, err := l.Reserve(context.Background(), need, &Attempt{}, a)
		third <- err
	}()
	waits := func() {
		t.Helper()
		select {
		case err := <-third:
			t.Fatalf("the third attempt began: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	waits()
	pay(first)
	pay(second)
	pay(second) // 5 are spent: with what is kept for the first, there is no room
	l.End(second, a)
	waits()
	l.End(first, a)
	if err := <-third; err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
}

// A request that is settled after its attempt has ended keeps nothing: no further
// request would come for it, and other attempts would wait for ever.
func TestARequestThatIsSettledLateKeepsNothing(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{})
	who := &Attempt{}
	late, err := l.Reserve(t.Context(), Amount{USD: 6}, who, a)
	testlevel.Must(t, err)
	l.End(who, a)
	late.Settle(Amount{USD: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err = l.Reserve(ctx, Amount{USD: 6}, &Attempt{}, a); err != nil {
		t.Errorf("another attempt: %v", err)
	}
}

// Another limit counts at once: also for a request that waits, and for one that would
// have been refused.
func TestALimitIsReplaced(t *testing.T) {
	t.Parallel()
	l := New()
	a := l.Open("run", limit(10), Amount{})
	who := &Attempt{}
	if _, err := l.Reserve(t.Context(), Amount{USD: 6}, who, a); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Reserve(context.Background(), Amount{USD: 6}, &Attempt{}, a)
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
	if _, err := l.Reserve(t.Context(), Amount{USD: 4}, who, a); !errors.As(err, &spent) || *a.Limit().CostUSD != 3 {
		t.Errorf("with a smaller one: %v", err)
	}
}
