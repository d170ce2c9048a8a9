package peers_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait in these tests.
const patience = time.Minute

// echo answers with the data of its task.
var echo = task.HandlerFunc(func(_ context.Context, r *task.Request[json.RawMessage]) (json.RawMessage, error) { return r.Data, nil })

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing was received in time")
		panic("unreachable")
	}
}
