package journaltest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal"
)

// Hammer applies commands from many goroutines until it is stopped, and records the
// results.
type Hammer struct {
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	acked map[string]Receipt
	more  chan struct{} // closed at the next answer
	wrong []error
}

// Strike starts n goroutines. The IDs of their commands begin with prefix.
func Strike(tb testing.TB, prefix string, n int, journals ...Journal) *Hammer {
	tb.Helper()
	h := &Hammer{acked: map[string]Receipt{}, more: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	for g := range n {
		h.work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%s-%d-%d", prefix, g, i)
				r, err := journals[g%len(journals)].Do(ctx, Command{ID: id, Account: prefix, Add: 1})
				h.note(id, r, err)
			}
		})
	}
	tb.Cleanup(h.Stop)
	return h
}

func (h *Hammer) note(id string, result any, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.acked[id] = result.(Receipt)
		close(h.more)
		h.more = make(chan struct{})
	case !errors.Is(err, journal.ErrUnavailable):
		h.wrong = append(h.wrong, err)
	}
}

// Await returns after n more answers.
func (h *Hammer) Await(tb testing.TB, n int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range n {
		h.mu.Lock()
		more := h.more
		h.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			require.NoError(tb, ctx.Err(), "no answers")
		}
	}
}

// Stop ends the goroutines. It does not wait for running commands.
func (h *Hammer) Stop() {
	h.stop()
	h.work.Wait()
}

// Acknowledged returns the place of each acknowledged command in the order.
func (h *Hammer) Acknowledged() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	acked := map[string]int{}
	for id, r := range h.acked {
		acked[id] = r.Place
	}
	return acked
}

// NothingWrong fails the test if a command failed for another reason than a missing
// answer.
func (h *Hammer) NothingWrong(tb testing.TB) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.NoError(tb, errors.Join(h.wrong...))
}

// Has fails the test unless the ledger has each acknowledged command once and in its
// place.
func (l *Ledger) Has(tb testing.TB, acked map[string]int) {
	tb.Helper()
	assert.Empty(tb, l.Faults())
	ids := l.IDs()
	lost := 0
	for id, place := range acked {
		if place >= len(ids) || ids[place] != id {
			lost++
		}
	}
	assert.Zero(tb, lost, "of %d commands that were acknowledged, among %d", len(acked), len(ids))
}

// Agree fails the test unless all journals reach the same state. No command may be
// running.
func Agree(tb testing.TB, journals ...Journal) {
	tb.Helper()
	for _, j := range journals {
		j.Add(tb, rand.Text()) // abandoned commands are before this one or never arrive
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var first string
	for i, j := range journals {
		require.NoError(tb, j.Sync(ctx))
		if i == 0 {
			first = j.Saved()
		}
		assert.Empty(tb, j.Faults())
		if j.Saved() != first {
			tb.Errorf("journal %d has %d commands, and the first one %d, or others", i, len(j.IDs()), len(journals[0].IDs()))
		}
	}
}
