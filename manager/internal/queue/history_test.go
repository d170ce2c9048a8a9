package queue

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestADelegateHasAHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{HeartbeatTimeout: time.Minute, ForgetLost: time.Hour})
	d := b.Register(acc, Registration{NewID: "d", Version: "1"})
	beat := func(r Registration) {
		r.ID = d
		require.NoError(t, b.Heartbeat(acc, r))
	}
	kinds := func(q *Queue) string {
		var all []string
		for _, c := range q.Delegates(acc)[0].History {
			all = append(all, c.Kind+" "+c.Version)
		}
		return strings.Join(all, ", ")
	}
	beat(Registration{})
	require.NoError(t, b.SetDraining(acc, d, true))
	beat(Registration{Draining: true})
	require.NoError(t, b.SetDraining(acc, d, false))
	beat(Registration{Version: "2"})
	b.advance(2 * time.Minute)
	beat(Registration{})
	want := "registered 1, drained 1, upgraded 2, resumed 2, lost 2, returned 2"
	require.Equal(t, want, kinds(b.Queue))
	h := b.Delegates(acc)[0].History
	assert.GreaterOrEqual(t, h[5].At.Sub(h[0].At), 2*time.Minute)

	beat(Registration{Refused: &Refusal{"cpu", 93, 80}})
	beat(Registration{})
	v := b.Delegates(acc)[0]
	assert.Equal(t, &Refusal{"cpu", 93, 80}, v.Refused, "until the next refusal")
	assert.False(t, v.RefusedAt.IsZero())

	b.Events()
	again := newBench(t, Config{HeartbeatTimeout: time.Minute, ForgetLost: time.Hour})
	require.NoError(t, again.Load(bytes.NewReader(save(t, b.Queue))))
	assert.Equal(t, want, kinds(again.Queue))
	assert.Equal(t, v.RefusedAt, again.Delegates(acc)[0].RefusedAt)

	for range maxHistory {
		require.NoError(t, b.SetDraining(acc, d, true))
		require.NoError(t, b.SetDraining(acc, d, false))
	}
	all := b.Delegates(acc)[0].History
	assert.Len(t, all, maxHistory)
	assert.Equal(t, "resumed", all[maxHistory-1].Kind)
}
