package manager

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// A large payload takes little room in memory and in the store, and the delegate gets it
// unchanged. One that cannot be compressed, or is small, stays as it is.
func TestLargePayloadsArePacked(t *testing.T) {
	t.Parallel()
	large := json.RawMessage(`{"a":"` + strings.Repeat("some text ", 100_000) + `"}`)
	p := pack(large)
	assert.Less(t, len(p.small)+len(p.text), len(large)/10)
	assert.Equal(t, large, p.json())
	var noise strings.Builder
	for noise.Len() < 2*packFrom {
		noise.WriteString(rand.Text())
	}
	for _, text := range []json.RawMessage{nil, json.RawMessage(`{}`)} {
		assert.Equal(t, packed{text: text}, pack(text))
	}
	assert.Equal(t, json.RawMessage(noise.String()), pack(json.RawMessage(noise.String())).json())

	m, err := New(Config{Accounts: map[string]string{"acc": "00000000000000000000000000000001"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	n, err := m.newRun(t.Context(), "acc", api.StageRequest{Steps: []api.StepRequest{{Data: large}}, Retry: &api.Retry{MaxAttempts: 2}})
	require.NoError(t, err)
	encoded, err := m.core.Encode(&command{Account: "acc", SubmitStage: n})
	require.NoError(t, err)
	assert.Less(t, len(encoded), len(large)/10)
	cmd, err := m.core.Decode(encoded)
	require.NoError(t, err)
	for _, n := range []*run{n, cmd.SubmitStage, cmd.SubmitStage.nextAttempt(2)} {
		assert.Contains(t, string(n.steps[0].task(n, 0, time.Now()).Data), strings.Repeat("some text ", 100_000))
		assert.NotEmpty(t, n.steps[0].data.small)
	}
}
