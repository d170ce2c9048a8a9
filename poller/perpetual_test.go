package poller

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// acknowledging is a manager that takes all results.
type acknowledging struct{ client.Client }

func (acknowledging) ReconcilePerpetual(context.Context, string, *perpetual.Report, time.Duration) (*perpetual.Answer, error) {
	return &perpetual.Answer{LeaseMS: 60_000}, nil
}

// Rule G1: the lease ends while a result is not reported. The manager takes the result then, while an answer is on
// its way that has the state from before it. The next run begins with the state of the result.
func TestALateResultIsNotForgotten(t *testing.T) {
	t.Parallel()
	states := make(chan string, 10)
	h := task.PerpetualFunc(func(_ context.Context, r *task.PerpetualRun) (*task.PerpetualResult, error) {
		states <- string(r.State)
		return &task.PerpetualResult{State: json.RawMessage(`"new"`)}, nil
	})
	p := newSession(t.Context(), New(acknowledging{}, router.New(nil), WithPerpetual("kind", h)), 1, "d", time.Second).perpetuals
	given := func(state string) *perpetual.Answer {
		a := perpetual.Assignment{Claim: perpetual.Claim{ID: "p", Token: 7}, Type: "kind", State: json.RawMessage(state), IntervalMS: 1}
		return &perpetual.Answer{LeaseMS: 60_000, HeldGiven: true, Held: []perpetual.Claim{a.Claim}, Assigned: []perpetual.Assignment{a}}
	}
	run := func() string {
		_, done := p.start()
		require.False(t, done)
		p.runs.Wait()
		select {
		case s := <-states:
			return s
		default:
			return "no run"
		}
	}
	p.apply(given(`"old"`), time.Now(), p.late)
	assert.Equal(t, `"old"`, run())

	p.leaseEnd = time.Now()
	p.expire(time.Now())
	begun, late := time.Now(), p.late // a call begins
	require.True(t, p.send())
	p.fresh = false
	p.apply(given(`"old"`), begun, late)
	assert.Equal(t, "no run", run())
	assert.True(t, p.fresh, "the next call must ask for everything")
	p.apply(given(`"new"`), time.Now(), p.late)
	assert.Equal(t, `"new"`, run())
}
