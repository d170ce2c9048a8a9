package transaction_test

import (
	"context"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/delegate-io/dlite/task/transaction"
	"github.com/stretchr/testify/assert"
)

// searchable is a world that can be searched by labels.
type searchable struct {
	*world
	asked map[string]string
}

func (s *searchable) Find(_ context.Context, labels map[string]string) ([]driver.Resource, error) {
	s.asked = labels
	return []driver.Resource{{Kind: "container", ID: "stray"}}, nil
}

// T2, T3: a cleanup for which there is no record removes what carries the
// transaction's and this delegate's labels.
func TestACleanupWithoutARecordGoesByLabels(t *testing.T) {
	t.Parallel()
	w := &searchable{world: newWorld()}
	w.exists["container stray"] = driver.Resource{Kind: "container", ID: "stray"}
	s := newStages(t, w.world)
	s.Manager = transaction.New(w, transaction.WithLedger(s.ledger), transaction.WithDelegate("tester"))
	assert.Equal(t, stage.Success, statusOf(s.cleanup("tx")))
	assert.Equal(t, map[string]string{driver.LabelTransaction: "tx", driver.LabelDelegate: "tester"}, w.asked)
	assert.Empty(t, w.left())
}
