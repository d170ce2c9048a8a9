package logservice

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader that was too slow to see a stream's end must not go on with the next
// one under the same key, from somewhere in the middle.
func TestAFollowerStaysWithItsStream(t *testing.T) {
	t.Parallel()
	cfg := Config{}
	cfg.setDefaults()
	s := newStore(&cfg)
	id := logID{"acc", "key"}
	put := func(outs ...string) {
		for _, o := range outs {
			require.NoError(t, s.append(id, "", []line{{raw: json.RawMessage(o)}}))
		}
	}
	put(`1`)
	f := follower{store: s, id: id}
	u, err := f.read()
	require.NoError(t, err)
	assert.Len(t, u.lines, 1)
	assert.False(t, u.end)

	require.NoError(t, s.finish(id, false))
	require.NoError(t, s.start(id, ""))
	put(`2`, `3`)
	u, err = f.read()
	require.NoError(t, err)
	assert.Empty(t, u.lines)
	assert.True(t, u.end)
}
