package logservice

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If many accounts use all that they may, the next account still gets a part.
func TestABudgetAlwaysHasARest(t *testing.T) {
	t.Parallel()
	b := newBudget("slots", 1000)
	var got []int
	for _, account := range []string{"a", "b", "c"} {
		n := 0
		for {
			if _, err := b.tryAcquire(account, 1); err != nil {
				require.ErrorContains(t, err, "its part of the slots")
				break
			}
			n++
		}
		got = append(got, n)
	}
	assert.Equal(t, []int{500, 250, 125}, got)
}

// A waiter gets its amount when there is enough. It does not overtake an earlier one of
// its account, and delays no other account.
func TestWaitersOfABudgetKeepTheirOrder(t *testing.T) {
	t.Parallel()
	b := newBudget("memory", 100)
	release, err := b.acquire(t.Context(), "a", 45)
	require.NoError(t, err)
	order := make(chan string, 2)
	wait := func(name string, amount int64) {
		done, err := b.acquire(t.Context(), "a", amount)
		assert.NoError(t, err)
		done()
		order <- name
	}
	go wait("large", 40)
	waitFor(b, 1)
	go wait("small", 1)
	waitFor(b, 2)
	other, err := b.acquire(t.Context(), "b", 20)
	require.NoError(t, err)
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.acquire(ctx, "a", 40)
	require.ErrorIs(t, err, context.Canceled)
	release()
	release()
	assert.ElementsMatch(t, []string{"large", "small"}, []string{<-order, <-order})
	full, err := b.tryAcquire("a", 50)
	require.NoError(t, err, "everything is free again")
	full()
	assert.Empty(t, b.own)
}

// waitFor waits until n callers wait for the budget.
func waitFor(b *budget, n int) {
	for {
		b.mu.Lock()
		have := len(b.waiters)
		b.mu.Unlock()
		if have >= n {
			return
		}
		runtime.Gosched()
	}
}
