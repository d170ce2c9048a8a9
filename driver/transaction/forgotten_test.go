package transaction_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/task"
)

// Rule T6: a forgotten transaction is cleaned up at once, and not at the end of its lease. A
// task of another kind or of another transaction changes nothing.
func TestForgottenTransactionIsCleanedUp(t *testing.T) {
	t.Parallel()
	for typ, data := range map[string]string{
		"local_init": `{"network":{"id":"tx"}}`, "CI_DOCKER_EXECUTE_TASK": `{"group_id":"tx","id":"step"}`,
	} {
		w := newFakeDriver()
		s := newStages(t, w)
		s.init("tx")
		s.CleanUpForgotten(t.Context(), &task.Task{Type: typ, Data: json.RawMessage(`{"group_id":"other"}`)})
		s.CleanUpForgotten(t.Context(), &task.Task{Type: typ, Data: json.RawMessage(`7`)})
		s.CleanUpForgotten(t.Context(), &task.Task{Type: "other", Data: json.RawMessage(data)})
		assert.Equal(t, 1, s.Open(), typ)
		s.CleanUpForgotten(t.Context(), &task.Task{Type: typ, Data: json.RawMessage(data)})
		assert.Zero(t, s.Open(), typ)
		assert.Empty(t, w.left(), typ)
		assert.Zero(t, s.slots.Used(), typ)
	}
}
