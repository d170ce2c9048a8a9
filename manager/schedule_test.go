package manager_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

func (s *server) schedule(id, body string) (out api.Schedule) {
	s.t.Helper()
	s.ok("PUT", "/api/schedules/"+id+"?accountId=acc", body, &out)
	return out
}

// submitted returns the ids of the stages that a schedule has submitted.
func (s *server) submitted(schedule string) (ids []string) {
	for _, st := range s.m.Stages(account) {
		if strings.HasPrefix(st.ID, schedule+"-") {
			ids = append(ids, strings.TrimPrefix(st.ID, schedule+"-"))
		}
	}
	return ids
}

// Rule Q6: a schedule submits at its times in its time zone, also across a clock
// change.
func TestASchedule(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.clock.Advance(time.Date(2024, 3, 29, 12, 0, 0, 0, time.UTC).Sub(s.clock.Now()))
	s = s.as(fakeSecret, account) // with a token of this time
	got := s.schedule("nightly", `{"cron":"30 3 * * *","time_zone":"Europe/Berlin","missed":"all","stage":{"selectors":["x"],"steps":[{}]}}`)
	assert.Equal(t, time.Date(2024, 3, 30, 2, 30, 0, 0, time.UTC), got.Next)
	s.advanceUntil(14*time.Hour+30*time.Minute, func() bool { return len(s.submitted("nightly")) == 1 })
	s.advanceUntil(24*time.Hour, func() bool { return len(s.submitted("nightly")) == 2 }) // the clock went forward
	assert.Equal(t, []string{"20240330T023000Z", "20240331T013000Z"}, s.submitted("nightly"))
	s = s.as(fakeSecret, account)
	var shown api.Schedule
	s.ok("GET", "/api/schedules/nightly?accountId=acc", "", &shown)
	assert.Equal(t, "nightly-20240331T013000Z", shown.LastID)

	var made struct{ ID string }
	s.ok("POST", "/api/schedules/nightly/trigger?accountId=acc", "", &made)
	assert.Equal(t, api.Queued, s.stage(made.ID).Status)
	due := shown.Next
	s.ok("GET", "/api/schedules/nightly?accountId=acc", "", &shown)
	assert.Equal(t, made.ID, shown.LastID)
	assert.WithinDuration(t, s.clock.Now(), shown.Last, time.Second)
	assert.Equal(t, due, shown.Next, "the times stay")
	s.ok("DELETE", "/api/schedules/nightly?accountId=acc", "", nil)
	assert.Equal(t, 404, s.call("DELETE", "/api/schedules/nightly?accountId=acc", "").status)
	assert.Equal(t, 404, s.as(otherSecret, otherAccount).call("GET", "/api/schedules/nightly?accountId=other", "").status)
}

// Rule Q6: times at which no manager was running.
func TestMissedTimes(t *testing.T) {
	t.Parallel()
	for missed, want := range map[string]int{"": 1, "once": 1, "skip": 0, "all": 5} {
		s := start(t)
		s.schedule("s", `{"cron":"@every 1h","missed":"`+missed+`","stage":{"selectors":["x"],"steps":[{}]}}`)
		s.advanceUntil(5*time.Hour+10*time.Minute, func() bool {
			now, err := s.m.Schedule(account, "s")
			return err == nil && now.Next.After(s.clock.Now())
		})
		assert.Len(t, s.submitted("s"), want, missed)
	}
	s := start(t)
	s.schedule("s", `{"cron":"@every 1m","missed":"all","stage":{"selectors":["x"],"steps":[{}]}}`)
	s.advanceUntil(1000*time.Minute, func() bool {
		now, err := s.m.Schedule(account, "s")
		return err == nil && now.Next.After(s.clock.Now())
	})
	assert.Len(t, s.submitted("s"), 101, "the first run and the newest hundred")
}

// Rule Q6: a schedule may skip overlapping runs, be paused, and submit single tasks.
func TestASchedulesRunsMayNotOverlap(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.schedule("t", `{"cron":"@every 10m","overlap":"skip","task":{"type":"custom","timeout_ms":86400000}}`)
	fired := func() bool {
		now, err := s.m.Schedule(account, "t")
		return err == nil && now.Last.Equal(s.clock.Now())
	}
	s.advanceUntil(10*time.Minute, fired)
	s.advanceUntil(10*time.Minute, fired)
	now, err := s.m.Schedule(account, "t")
	require.NoError(t, err)
	assert.Contains(t, now.LastError, "has not ended")
	_, err = s.m.AbortTask(t.Context(), account, now.LastID)
	require.NoError(t, err)
	s.advanceUntil(10*time.Minute, fired)
	again, err := s.m.Schedule(account, "t")
	require.NoError(t, err)
	assert.NotEqual(t, now.LastID, again.LastID)
	assert.Empty(t, again.LastError)

	paused := s.schedule("t", `{"cron":"@every 10m","paused":true,"task":{"type":"custom"}}`)
	assert.True(t, paused.Next.IsZero())
	assert.Equal(t, again.LastID, paused.LastID)
}

func TestInvalidSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, want := range map[string]string{
		`{"cron":"x","stage":{}}`:                              "cron",
		`{"cron":"0 0 30 2 *","stage":{}}`:                     "never matches a time",
		`{"cron":"TZ=UTC 0 0 * * *","stage":{}}`:               "time_zone",
		`{"cron":"@daily"}`:                                    "one of them",
		`{"cron":"@daily","stage":{},"task":{}}`:               "one of them",
		`{"cron":"@daily","stage":{"priority":"LOW"}}`:         "priority",
		`{"cron":"@daily","task":{}}`:                          "type",
		`{"cron":"@daily","stage":{},"time_zone":"Mars/Base"}`: "Europe/Berlin",
		`{"cron":"@daily","stage":{},"missed":"some"}`:         "missed",
		`{"cron":"@daily","stage":{},"overlap":"some"}`:        "overlap",
		`{"cron":"@daily","stage":{},"id":"other"}`:            "other",
	} {
		r := s.call("PUT", "/api/schedules/s?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, want, body)
	}
	assert.Empty(t, s.m.Schedules(account))
	_, err := s.m.SetSchedule(context.Background(), account, api.Schedule{Cron: "@daily", Stage: json.RawMessage(`{}`)})
	require.ErrorIs(t, err, manager.ErrInvalid)
	assert.False(t, slices.Contains(s.m.Accounts(), "nobody"))
}
