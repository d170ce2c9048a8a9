package logservice

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// budget divides an amount among accounts. The new total of an account must not exceed
// the amount that is free before the call. With small requests, one account therefore
// gets at most a half, and two accounts get a third each. A part always remains for an
// account that has nothing yet.
type budget struct {
	name  string // of the amount, for the error
	total int64

	mu      sync.Mutex // guards the following fields
	taken   int64
	own     map[string]int64
	waiters []*budgetWaiter // in the order of their arrival
}

type budgetWaiter struct {
	account string
	amount  int64
	granted chan struct{}
}

// maxBudgetWait is the longest time for which acquire waits.
const maxBudgetWait = 20 * time.Second

func newBudget(name string, total int64) *budget {
	return &budget{name: name, total: total, own: map[string]int64{}}
}

// acquire takes an amount for an account. If it is not free, acquire waits for a limited
// time. The caller must call release. An amount above half of the total never fits.
func (b *budget) acquire(ctx context.Context, account string, amount int64) (release func(), err error) {
	b.mu.Lock()
	w := &budgetWaiter{account: account, amount: amount, granted: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.grant()
	b.mu.Unlock()
	release = sync.OnceFunc(func() { b.release(w) })
	timeout := time.NewTimer(maxBudgetWait)
	defer timeout.Stop()
	select {
	case <-w.granted:
		return release, nil
	case <-timeout.C:
		err = b.refusal()
	case <-ctx.Done():
		err = ctx.Err()
	}
	release()
	return nil, err
}

// tryAcquire is acquire without a wait.
func (b *budget) tryAcquire(account string, amount int64) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(account, amount) {
		return nil, b.refusal()
	}
	w := &budgetWaiter{account: account, amount: amount, granted: make(chan struct{})}
	b.take(w)
	return sync.OnceFunc(func() { b.release(w) }), nil
}

// refusal returns the error for an account that has used its part.
func (b *budget) refusal() error {
	return &httpError{http.StatusTooManyRequests, "this account has used its part of the " + b.name + " of the log service: repeat the request later"}
}

// fits reports whether an amount is free for an account. The caller must hold mu.
func (b *budget) fits(account string, amount int64) bool {
	return b.own[account]+amount <= b.total-b.taken
}

// take takes the amount of a waiter. The caller must hold mu.
func (b *budget) take(w *budgetWaiter) {
	b.taken += w.amount
	b.own[w.account] += w.amount
	close(w.granted)
}

// release returns the amount of a waiter, or removes a waiter that has none.
func (b *budget) release(w *budgetWaiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted:
		b.taken -= w.amount
		if b.own[w.account] -= w.amount; b.own[w.account] == 0 {
			delete(b.own, w.account)
		}
	default:
		w.amount = 0 // grant removes it
	}
	b.grant()
}

// grant serves the waiters for which there is enough. A waiter does not overtake an
// earlier one of its account. The caller must hold mu.
func (b *budget) grant() {
	var blocked map[string]bool
	left := b.waiters[:0]
	for _, w := range b.waiters {
		switch {
		case w.amount == 0:
		case !blocked[w.account] && b.fits(w.account, w.amount):
			b.take(w)
		default:
			if blocked == nil {
				blocked = map[string]bool{}
			}
			blocked[w.account] = true
			left = append(left, w)
		}
	}
	clear(b.waiters[len(left):])
	b.waiters = left
}
