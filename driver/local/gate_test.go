package local

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

type ledgerFunc func(driver.Resource) error

func (f ledgerFunc) Record(_ context.Context, r driver.Resource) error { return f(r) }

// SPEC T3: a cleanup between the record and the creation wins.
func TestGateDoesNotCreateWhatIsCondemned(t *testing.T) {
	t.Parallel()
	var g gate
	r := driver.Resource{Kind: kindContainer, ID: "c"}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := g.create(t.Context(), ledgerFunc(func(driver.Resource) error {
		// It condemns at once, and with an ended context does not wait.
		require.ErrorIs(t, g.condemn(ended, []driver.Resource{r}), context.Canceled)
		return nil
	}), r, func() error {
		t.Error("it was created")
		return nil
	})
	require.ErrorIs(t, err, errCleanedUp)
	require.Empty(t, g.entries)
	// Only what is under way is condemned.
	require.NoError(t, g.condemn(t.Context(), []driver.Resource{r}))
	require.NoError(t, g.create(t.Context(), ledgerFunc(func(driver.Resource) error { return nil }), r, func() error { return nil }))
}

// A cleanup waits for a creation that it came too late for.
func TestGateCondemnWaitsForACreationUnderWay(t *testing.T) {
	t.Parallel()
	var g gate
	r := driver.Resource{Kind: kindContainer, ID: "c"}
	condemned := make(chan bool, 1)
	made := false
	require.NoError(t, g.create(t.Context(), ledgerFunc(func(driver.Resource) error { return nil }), r, func() error {
		started := make(chan struct{})
		go func() {
			close(started)
			_ = g.condemn(context.WithoutCancel(t.Context()), []driver.Resource{r})
			condemned <- made // the race detector sees a condemn that does not wait
		}()
		<-started
		made = true
		return nil
	}))
	require.True(t, <-condemned)
}

func TestGateReportsWhatTheLedgerSays(t *testing.T) {
	t.Parallel()
	var g gate
	full := errors.New("full")
	err := g.create(t.Context(), ledgerFunc(func(driver.Resource) error { return full }), driver.Resource{Kind: "k", ID: "i"}, func() error {
		t.Error("it was created")
		return nil
	})
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "record k i")
}
