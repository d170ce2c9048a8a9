package transaction_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// searchable is a fakeDriver that finds resources by their labels.
type searchable struct {
	*fakeDriver
	asked map[string]string
}

func (s *searchable) Find(_ context.Context, labels map[string]string) ([]driver.Resource, error) {
	s.asked = labels
	return []driver.Resource{
		{Kind: "container", ID: "stray", Labels: map[string]string{driver.LabelTransaction: "gone"}},
		{Kind: "container", ID: "ours", Labels: map[string]string{driver.LabelTransaction: "open"}},
	}, nil
}

// Rules T2, T3: resources that no record names are removed by the ledger's label: at the start
// of the delegate, and in a cleanup without a record. Resources of an open transaction stay.
func TestResourcesWithoutARecordAreRemovedByTheirLabel(t *testing.T) {
	t.Parallel()
	w := &searchable{fakeDriver: newFakeDriver()}
	s := newStages(t, w.fakeDriver)
	s.Stages = transaction.New(w, transaction.WithLedger(s.ledger), transaction.WithDelegate("tester"))
	s.init("open")
	for name, do := range map[string]func(){
		"at the start": func() { require.NoError(t, s.Recover(t.Context())) },
		"at a cleanup": func() { assert.Equal(t, stage.Success, statusOf(s.cleanup("gone"))) },
	} {
		w.exists["container stray"] = driver.Resource{Kind: "container", ID: "stray"}
		w.exists["container ours"] = driver.Resource{Kind: "container", ID: "ours"}
		do()
		assert.Equal(t, []string{"container ours", "network open"}, w.left(), name)
		assert.Len(t, w.asked, 1)
		assert.NotEmpty(t, w.asked[driver.LabelLedger])
	}
}

// Rule T2: an engine may create a resource for a killed process after the record was swept.
// The delegate sweeps again.
func TestTheSecondSweepRemovesLateResources(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	dir, record := crashed(t, w)
	now := time.Now()
	require.NoError(t, os.Chtimes(record, now, now))
	var mu sync.Mutex
	s := reopenStages(t, w, dir, transaction.WithClock(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}))
	require.NoError(t, s.Recover(t.Context()))
	assert.Empty(t, w.left())
	require.Len(t, s.records(), 1, "the record stays for a while")

	w.mu.Lock()
	w.exists["network tx"] = driver.Resource{Kind: "network", ID: "tx"} // the engine creates it only now
	w.mu.Unlock()
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Maintain(ctx, time.Millisecond) })
	require.Eventually(t, func() bool { return len(s.records()) == 0 }, 10*time.Second, time.Millisecond)
	cancel()
	wg.Wait()
	assert.Empty(t, w.left())
}
