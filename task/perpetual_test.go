package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// G1: each bound of a result is checked on its own.
func TestAResultOfAPerpetualTaskIsBounded(t *testing.T) {
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	for name, r := range map[string]*task.PerpetualResult{
		"":                            nil,
		"the state has 65537 bytes":   {State: text(task.MaxPerpetualState + 1)},
		"the state is not valid JSON": {State: json.RawMessage("{")},
		"there are 101 events":        {Events: make([]json.RawMessage, task.MaxPerpetualEvents+1)},
		"event 1 is not valid JSON":   {Events: []json.RawMessage{json.RawMessage("1"), nil}},
		"more than 262144 bytes": {Events: []json.RawMessage{
			text(task.MaxPerpetualEventBytes), json.RawMessage("1"),
		}},
	} {
		if err := r.Check(); name == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, name)
		}
	}
	full := &task.PerpetualResult{State: text(task.MaxPerpetualState), Events: []json.RawMessage{text(task.MaxPerpetualEventBytes)}}
	require.NoError(t, full.Check())
}
