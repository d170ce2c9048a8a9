package recorded

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

type ledgerFunc func(driver.Resource) error

func (f ledgerFunc) Record(_ context.Context, r driver.Resource) error { return f(r) }

// Rule T3: after a cleanup between the record and the creation, nothing is created.
func TestGateDoesNotCreateABlockedResource(t *testing.T) {
	t.Parallel()
	var g Gate
	r := driver.Resource{Kind: "container", ID: "c"}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := g.Create(t.Context(), ledgerFunc(func(driver.Resource) error {
		// Block has its effect at once, and does not wait when its context has ended.
		require.ErrorIs(t, g.Block(ended, []driver.Resource{r}), context.Canceled)
		return nil
	}), r, func() error {
		t.Error("it was created")
		return nil
	})
	require.ErrorIs(t, err, ErrCleanedUp)
	require.Empty(t, g.entries)
	// Block affects only creations that are running.
	require.NoError(t, g.Block(t.Context(), []driver.Resource{r}))
	require.NoError(t, g.Create(t.Context(), ledgerFunc(func(driver.Resource) error { return nil }), r, func() error { return nil }))
}

// A cleanup waits for a creation that has begun.
func TestBlockWaitsForARunningCreation(t *testing.T) {
	t.Parallel()
	var g Gate
	r := driver.Resource{Kind: "container", ID: "c"}
	blocked := make(chan bool, 1)
	made := false
	require.NoError(t, g.Create(t.Context(), ledgerFunc(func(driver.Resource) error { return nil }), r, func() error {
		started := make(chan struct{})
		go func() {
			close(started)
			_ = g.Block(context.WithoutCancel(t.Context()), []driver.Resource{r})
			blocked <- made // the race detector finds a Block that does not wait
		}()
		<-started
		made = true
		return nil
	}))
	require.True(t, <-blocked)
}

func TestGateReturnsTheErrorOfTheLedger(t *testing.T) {
	t.Parallel()
	var g Gate
	full := errors.New("full")
	err := g.Create(t.Context(), ledgerFunc(func(driver.Resource) error { return full }), driver.Resource{Kind: "k", ID: "i"}, func() error {
		t.Error("it was created")
		return nil
	})
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "record k i")
}

// The second creation waits for the first, but no longer than its context.
func TestGateCreatesAResourceOnceAtATime(t *testing.T) {
	t.Parallel()
	var g Gate
	r := driver.Resource{Kind: "k", ID: "i"}
	kept := ledgerFunc(func(driver.Resource) error { return nil })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	second := make(chan error, 1)
	made := 0
	require.NoError(t, g.Create(t.Context(), kept, r, func() error {
		require.ErrorIs(t, g.Create(ended, kept, r, func() error { return errors.New("it was created") }), context.Canceled)
		require.NoError(t, g.Create(ended, kept, driver.Resource{Kind: "k", ID: "j"}, func() error { return nil }), "another resource does not wait")
		started := make(chan struct{})
		go func() {
			close(started)
			second <- g.Create(context.WithoutCancel(t.Context()), kept, r, func() error {
				made++ // the race detector finds two creations at once
				return nil
			})
		}()
		<-started
		made++
		return nil
	}))
	require.NoError(t, <-second)
	require.Equal(t, 2, made)
	require.Empty(t, g.entries)
}
