package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	wire "github.com/delegate-io/dlite/internal/perpetual"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// perpetual makes the call of a delegate's process about its perpetual tasks.
func (s *server) perpetual(delegate, session, more string) (out wire.Answer) {
	s.t.Helper()
	s.ok("POST", "/api/agent/perpetual/"+delegate+"/reconcile?accountId=acc", `{"session":"`+session+`","types":["count"]`+more+`}`, &out)
	return out
}

func resultOf(c wire.Claim, run int, state string) string {
	return fmt.Sprintf(`,"results":[{"id":"%s","token":%d,"run":%d,"startedAgoMs":5,"durationMs":5,"state":%s,"events":[%[4]s]}]`, c.ID, c.Token, run, state)
}

// G1: the lease of a silent holder ends, the other delegate gets the task with a larger
// token and the state, and a late result of the old holder is refused. A drain by the
// operator, and an unregistration, move the task too.
func TestAPerpetualTaskMovesWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, b := s.register("a", nil, "linux"), s.register("b", nil, "linux")
	var shown api.PerpetualTask
	s.ok("PUT", "/api/perpetual/p?accountId=acc", `{"type":"count","interval_ms":60000,"selectors":["Linux"]}`, &shown)
	assert.Contains(t, shown.Waiting, "no delegate")
	first := s.perpetual(a, "s-a", "")
	require.Len(t, first.Assigned, 1)
	old := first.Assigned[0].Claim
	assert.Empty(t, s.perpetual(a, "s-a", resultOf(old, 1, "1")).Refused)
	assert.Empty(t, s.perpetual(a, "s-a", resultOf(old, 1, "1")).Refused, "the answer was lost, and the call comes again")
	assert.Empty(t, s.perpetual(b, "s-b", "").Assigned)

	s.advanceUntil(20*time.Second, func() bool { return true })
	s.perpetual(b, "s-b", "")
	var moved wire.Answer
	s.advanceUntil(11*time.Second, func() bool { moved = s.perpetual(b, "s-b", ""); return len(moved.Assigned) == 1 })
	assert.Equal(t, "1", string(moved.Assigned[0].State))
	assert.Greater(t, moved.Assigned[0].Token, old.Token)
	late := s.perpetual(a, "s-a", resultOf(old, 2, "2"))
	require.Len(t, late.Refused, 1)
	assert.Contains(t, late.Refused[0].Error, "is not current")
	assert.False(t, late.Refused[0].Retry)

	s.ok("POST", "/api/delegates/"+b+"/drain?accountId=acc", "", nil)
	asked := s.perpetual(b, "s-b", "")
	require.Equal(t, wire.WithdrawNow, asked.Assigned[0].Withdraw)
	assert.Empty(t, s.perpetual(a, "s-a", "").Assigned, "the holder has it until it hands it back")
	s.perpetual(b, "s-b", fmt.Sprintf(`,"released":[{"id":"p","token":%d}]`, asked.Assigned[0].Token))
	back := s.perpetual(a, "s-a", "")
	require.Len(t, back.Assigned, 1)
	s.ok("POST", "/api/delegates/"+b+"/resume?accountId=acc", "", nil)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+a+`"}`, nil)
	require.Len(t, s.perpetual(b, "s-b", "").Assigned, 1)
	s.ok("GET", "/api/perpetual/p?accountId=acc", "", &shown)
	assert.Equal(t, "b", shown.DelegateName)
	assert.Equal(t, uint64(1), shown.Runs)
	assert.Equal(t, 1, shown.EventsWaiting)
}

// G1: a request beyond a bound is refused, and names the member; a budget is answered with 429.
func TestPerpetualTasksAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget.Perpetual = 1 })
	d := s.register("d", nil)
	for body, want := range map[string]string{
		`{"interval_ms":1000}`: "type is missing",
		`{"type":"x"}`:         "interval_ms or loop",
		`{"type":"x","interval_ms":1000,"loop":true}`:                 "interval_ms or loop",
		`{"type":"x","interval_ms":999}`:                              "at least 1000",
		`{"type":"x","loop":true,"confg":1}`:                          "confg",
		`{"type":"x","loop":true,"timeout_ms":-1}`:                    "timeout_ms",
		`{"type":"x","loop":true,"config":"` + long(70_000) + `"}`:    "config",
		`{"type":"x","loop":true,"selectors":["` + long(2000) + `"]}`: "selectors[0]",
	} {
		r := s.call("PUT", "/api/perpetual/p?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, want)
	}
	s.ok("PUT", "/api/perpetual/p?accountId=acc", `{"type":"count","loop":true}`, nil)
	s.ok("PUT", "/api/perpetual/p?accountId=acc", `{"type":"count","loop":true,"paused":true}`, nil)
	assert.Equal(t, 429, s.call("PUT", "/api/perpetual/q?accountId=acc", `{"type":"count","loop":true}`).status)
	assert.Equal(t, 409, s.call("POST", "/api/perpetual/p/run?accountId=acc", "").status)
	assert.Equal(t, 404, s.call("POST", "/api/perpetual/q/run?accountId=acc", "").status)
	call := "/api/agent/perpetual/" + d + "/reconcile?accountId=acc"
	for body, want := range map[string]string{
		`{}`: "session is missing",
		`{"session":"s","results":[{"id":"p","run":1,"startedAgoMs":-1}]}`:                             "startedAgoMs",
		`{"session":"s","results":[{"id":"p","run":1,"durationMs":1}]}`:                                "durationMs",
		`{"session":"s","results":[{"id":"p","run":1,"error":"e","state":1}]}`:                         "has an error",
		`{"session":"s","results":[{"id":"p","run":1,"state":"` + long(70_000) + `"}]}`:                "the state has",
		`{"session":"s","results":[{"id":"p","run":1,"events":[1` + strings.Repeat(",1", 100) + `]}]}`: "101 events",
	} {
		r := s.call("POST", call, body)
		assert.Equal(t, 400, r.status, want)
		assert.Contains(t, r.body, want)
	}
	assert.Equal(t, 404, s.call("POST", "/api/agent/perpetual/unknown/reconcile?accountId=acc", `{"session":"s"}`).status)
	assert.Equal(t, 404, s.as(otherSecret, otherAccount).call("GET", "/api/perpetual/p?accountId=other", "").status)
}

func long(n int) string { return strings.Repeat("x", n) }

// G1, Q7: tasks, holders, tokens, states and events survive a restart, from the saved state
// and from the log. A consumer that fails gets the same events again.
func TestPerpetualTasksSurviveARestart(t *testing.T) {
	t.Parallel()
	once(t)
	dir := t.TempDir()
	open := func() *server {
		return start(t, func(c *manager.Config) {
			c.Store, c.StoreKeys, c.CompactAfter = openSQLite(t, dir), storeKeys, 1
		})
	}
	s := open()
	d := s.register("d", nil)
	s.ok("PUT", "/api/perpetual/p?accountId=acc", `{"type":"count","loop":true,"config":{"a":1}}`, nil)
	claim := s.perpetual(d, "s", "").Assigned[0].Claim
	for run := 1; run <= 3; run++ {
		s.perpetual(d, "s", resultOf(claim, run, fmt.Sprint(run)))
	}
	require.NoError(t, s.m.Close())

	s = open()
	again := s.perpetual(d, "s", "")
	require.Len(t, again.Assigned, 1)
	assert.Equal(t, claim, again.Assigned[0].Claim, "the same session still has it")
	assert.Equal(t, "3", string(again.Assigned[0].State))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	calls := make(chan struct{}, 1)
	over := make(chan error, 1)
	go func() {
		over <- s.m.ConsumePerpetual(ctx, "count", func(_ context.Context, events []manager.PerpetualEvent) error {
			if calls <- struct{}{}; len(got) == 0 {
				got = append(got, "failed")
				return assert.AnError
			}
			for _, e := range events {
				got = append(got, string(e.Data))
			}
			return nil
		})
	}()
	<-calls
	require.Eventually(t, func() bool { // the consumer may not wait yet
		s.clock.Advance(time.Second)
		return len(calls) == 1
	}, 30*time.Second, time.Millisecond)
	<-calls
	require.Eventually(t, func() bool {
		p, err := s.m.Perpetual(account, "p")
		return err == nil && p.EventsWaiting == 0
	}, 30*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	assert.Equal(t, []string{"failed", "1", "2", "3"}, got)
}
