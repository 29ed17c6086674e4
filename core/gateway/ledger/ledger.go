// Package ledger enforces budgets. The largest possible cost of a request is
// reserved before it is sent, and settled when its actual cost is known, so a
// budget holds however many requests are in flight.
//
// It must not know what a request is, or what a token costs.
package ledger

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/berth-eval/berth/core/cell"
)

// Amount is an amount spent. The zero value is nothing.
type Amount struct {
	Requests int64
	Tokens   int64   // input and output
	USD      float64 // at known prices
}

// Plus returns the sum of a and b.
func (a Amount) Plus(b Amount) Amount {
	return Amount{a.Requests + b.Requests, a.Tokens + b.Tokens, a.USD + b.USD}
}

func (a Amount) minus(b Amount) Amount {
	return Amount{a.Requests - b.Requests, a.Tokens - b.Tokens, a.USD - b.USD}
}

// none reports whether a is zero, except for rounding errors.
func (a Amount) none() bool { return a.Requests == 0 && a.Tokens == 0 && a.USD < slack }

// slack is the largest rounding error of a sum of prices, in USD.
const slack = 1e-9

// exceeds returns the unit in which a exceeds a budget; empty if it does not.
func (a Amount) exceeds(l cell.Budget) string {
	switch {
	case l.Requests != nil && a.Requests > *l.Requests:
		return "requests"
	case l.Tokens != nil && a.Tokens > *l.Tokens:
		return "tokens"
	case l.CostUSD != nil && a.USD > *l.CostUSD+slack:
		return "USD"
	default:
		return ""
	}
}

// SpentError says that a budget has no room for a request, now or later.
type SpentError struct {
	Account *Account // whose budget
	Unit    string   // requests, tokens or USD
	Limit   string
	Spent   string
	Need    string // the largest amount that the request could use
	First   bool   // nothing was spent or reserved: the budget is too small for one such request
}

// Error describes the budget with its figures.
func (e *SpentError) Error() string {
	if e.First {
		return fmt.Sprintf("the budget of the %s, %s %s, is too small for its first request, which could take up to %s",
			e.Account.name, e.Limit, e.Unit, e.Need)
	}
	text := fmt.Sprintf("the budget of the %s is used up: %s of %s %s are spent", e.Account.name, e.Spent, e.Limit, e.Unit)
	if e.Unit != "requests" {
		text += fmt.Sprintf(", and the next request could take up to %s more", e.Need)
	}
	return text
}

func spent(a *Account, unit string, need Amount) *SpentError {
	l, have := a.limit, a.settled
	e := &SpentError{Account: a, Unit: unit, First: have.none() && a.reserved.none()}
	switch unit {
	case "requests":
		e.Limit, e.Spent, e.Need = count(*l.Requests), count(have.Requests), count(need.Requests)
	case "tokens":
		e.Limit, e.Spent, e.Need = count(*l.Tokens), count(have.Tokens), count(need.Tokens)
	default:
		e.Limit, e.Spent, e.Need = usd(*l.CostUSD), usd(have.USD), usd(need.USD)
	}
	return e
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
func usd(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }

// Ledger holds accounts. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	changed chan struct{} // closed when a reservation ends
}

// New makes a ledger without accounts.
func New() *Ledger { return &Ledger{changed: make(chan struct{})} }

// Account is one budget. It is guarded by its ledger.
type Account struct {
	ledger   *Ledger
	name     string
	limit    cell.Budget
	settled  Amount
	reserved Amount
	kept     map[*Attempt]Amount // for the next requests of attempts
}

// Attempt is what pays for its requests out of accounts. It is guarded by their
// ledger.
type Attempt struct {
	begun bool // a request of it has been paid for
	ended bool // it sends no more requests for now: see End
}

// Open makes an account; part of its budget may already be spent.
func (l *Ledger) Open(name string, limit cell.Budget, already Amount) *Account {
	return &Account{ledger: l, name: name, limit: limit, settled: already, kept: map[*Attempt]Amount{}}
}

// Limit returns the limit of the account.
func (a *Account) Limit() cell.Budget {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.limit
}

// SetLimit replaces the limit of the account, also for requests that wait.
func (a *Account) SetLimit(l cell.Budget) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.limit = l
	a.ledger.tell()
}

// Settled returns the settled amount, without reservations.
func (a *Account) Settled() Amount {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.settled
}

// keeps returns how much of the account is kept for the next requests of attempts.
func (a *Account) keeps() (sum Amount) {
	for _, next := range a.kept {
		sum = sum.Plus(next)
	}
	return sum
}

// End says that an attempt sends no more requests for now, so that nothing is
// kept for it in these accounts.
func (l *Ledger) End(who *Attempt, accounts ...*Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	who.ended = true // a request may still be settled
	for _, a := range accounts {
		delete(a.kept, who)
	}
	l.tell()
}

// tell wakes those that wait.
func (l *Ledger) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Hold is a reservation.
type Hold struct {
	who      *Attempt
	accounts []*Account
	amount   Amount
	once     sync.Once
}

// Reserve reserves an amount in all accounts, or in none. If only other
// reservations take up the room, it waits for them. After a request of an
// attempt, as much as it reserved is kept for the next one, until End: the first
// request of another attempt waits. Otherwise, in a budget that is nearly used
// up, many attempts would begin and none would finish. Fails with a *SpentError,
// or with the cause of ctx.
func (l *Ledger) Reserve(ctx context.Context, need Amount, who *Attempt, accounts ...*Account) (*Hold, error) {
	for {
		l.mu.Lock()
		wait := false
		for _, a := range accounts {
			if unit := a.settled.Plus(need).exceeds(a.limit); unit != "" {
				err := spent(a, unit, need)
				l.mu.Unlock()
				return nil, err
			}
			taken := a.settled.Plus(a.reserved).Plus(need)
			if !who.begun {
				taken = taken.Plus(a.keeps())
			}
			wait = wait || taken.exceeds(a.limit) != ""
		}
		if !wait {
			who.begun, who.ended = true, false
			for _, a := range accounts {
				delete(a.kept, who)
				a.reserved = a.reserved.Plus(need)
			}
			l.mu.Unlock()
			return &Hold{who: who, accounts: accounts, amount: need}, nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Settle ends a reservation with the amount that was spent. Later calls do
// nothing.
func (h *Hold) Settle(actual Amount) {
	h.once.Do(func() {
		if len(h.accounts) == 0 {
			return
		}
		l := h.accounts[0].ledger
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, a := range h.accounts {
			a.reserved = a.reserved.minus(h.amount)
			a.settled = a.settled.Plus(actual)
			if !a.limit.None() && !h.who.ended {
				a.kept[h.who] = h.amount
			}
		}
		l.tell()
	})
}

// Amount returns the reserved amount.
func (h *Hold) Amount() Amount { return h.amount }
