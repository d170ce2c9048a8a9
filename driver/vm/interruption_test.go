package vm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D6: a machine that the cloud takes away fails its transaction within seconds, as lost, and is replaced. A warm one
// is not given to a transaction. The pool does not pause, because it is no failure of a creation.
func TestAnInterruptedMachineIsReplaced(t *testing.T) {
	inBubble(t, PoolConfig{Min: 1, Max: 3, MaxUses: 9, Metadata: "http://metadata.invalid"}, func(b *bubble) {
		notify := func(id, action string) {
			b.fake.set(func(f *fakeProvider) {
				if f.notices == nil {
					f.notices = map[string]*agent.Interruption{}
				}
				f.notices[id] = &agent.Interruption{Action: action, At: time.Now().Add(2 * time.Minute)}
			})
		}
		m := b.mustClaim()
		b.wait(time.Minute)
		b.requireStats(Stats{Warm: 1, Claimed: 1})
		notify(m.id, "terminate")
		b.wait(noticeInterval)
		require.True(b, closed(m.gone), "steps end")
		var kind interface{ FailureKind() string }
		require.ErrorAs(b, m.reason, &kind)
		require.Equal(b, stage.FailureDelegateLost, kind.FailureKind())
		require.ErrorContains(b, m.reason, `the cloud takes the machine away ("terminate" at 2000-01-01T`)
		require.NoError(b, b.release(m))
		b.requireStats(Stats{Warm: 1})

		// A warm one, that a claim finds before the next check.
		var idle string
		b.pool.mu.Lock()
		for id := range b.pool.machines {
			idle = id
		}
		b.pool.mu.Unlock()
		notify(idle, "stop")
		next := b.mustClaim()
		require.NotEqual(b, idle, next.id)
		b.requireStats(Stats{Warm: 1, Claimed: 1})

		// A recommendation lets the transaction finish, and then the machine goes, although it could serve others.
		notify(next.id, "rebalance")
		b.wait(noticeInterval)
		require.False(b, closed(next.gone))
		require.NoError(b, b.release(next))
		b.pool.mu.Lock()
		require.Nil(b, b.pool.machines[next.id])
		for id := range b.pool.machines {
			idle = id
		}
		b.pool.mu.Unlock()
		notify(idle, "rebalance")
		b.wait(noticeInterval)
		b.requireStats(Stats{Warm: 1})
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		require.Nil(b, b.pool.machines[idle], "a warm machine is replaced before it is used")
	})
}

// The driver shows the notice of an agent, and bounds it: a hostile stage may control the machine.
func TestAHostileNoticeIsBounded(t *testing.T) {
	t.Parallel()
	err := interrupted(&agent.Interruption{Action: "x\n" + strings.Repeat("y", 1000)})
	assert.Less(t, len(err.Error()), 100)
	assert.NotContains(t, err.Error(), "\n")
	assert.NoError(t, interrupted(nil))
	_, ok := isInterrupted(errors.Join(errors.New("other"), err))
	assert.True(t, ok)
}
