package manager_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

func TestAHoldThatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, text := range map[string]string{
		`{"hold":{}}`:                                                      "hold.lease_ms is 0; it may be 1000 to 86400000",
		`{"hold":{"lease_ms":86400001}}`:                                   "hold.lease_ms",
		`{"hold":{"lease_ms":1000,"x":1}}`:                                 "hold.x: unknown member",
		`{"hold":{"lease_ms":1000},"retry":{"max_attempts":2}}`:            "retry: a stage with a hold cannot run again",
		`{"hold":{"lease_ms":1000,"announced":[{"id":"a/../\u0001"}]}}`:    "hold.announced[0].id",
		`{"hold":{"lease_ms":1000,"announced":[{"data":{"imagee":"x"}}]}}`: `hold.announced[0].data.imagee`,
		`{"hold":{"lease_ms":1000},"steps":[{"id":"a"},{"id":"a"}]}`:       "steps[1].id",
	} {
		r := s.call("POST", "/api/stages?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, text, body)
	}
	r := s.call("PUT", "/api/schedules/x?accountId=acc", `{"cron":"@daily","stage":{"hold":{"lease_ms":1000}}}`)
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "stage.hold")
}

func TestAnAppendThatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.open("")
	for body, text := range map[string]string{
		`{}`:                                "steps is empty",
		`{"steps":[{}]}`:                    "steps[0].id is missing",
		`{"steps":[{"id":"."}]}`:            "steps[0].id",
		`{"steps":[{"id":"a"},{"id":"a"}]}`: "steps[1].id",
		`{"steps":[{"id":"a","run_on":"failure"}]}`:    "steps[0].run_on",
		`{"steps":[{"id":"a","run_on":"maybe"}]}`:      "steps[0].run_on",
		`{"steps":[{"id":"a","timeout_ms":-1}]}`:       "steps[0].timeout_ms",
		`{"steps":[{"id":"a","data":5}]}`:              "steps[0].data",
		`{"steps":[{"id":"a","data":{"comands":[]}}]}`: "did you mean",
		`{"step":[{"id":"a"}]}`:                        `did you mean \"steps\"`,
	} {
		r := s.call("POST", "/api/stages/s/steps?accountId=acc", body)
		assert.Equal(t, 400, r.status, body)
		assert.Contains(t, r.body, text, body)
	}
	assert.Empty(t, s.stage("s").Steps)
	require.Equal(t, 404, s.call("POST", "/api/stages/x/steps?accountId=acc", stepsBody("a")).status)
	require.Equal(t, 404, s.call("GET", "/api/stages/s/steps/x?accountId=acc", "").status)

	s.submit(`{"id":"plain"}`)
	for _, path := range []string{"steps", "finish", "renew"} {
		r := s.call("POST", "/api/stages/plain/"+path+"?accountId=acc", stepsBody("a"))
		require.Equal(t, 409, r.status, path)
		assert.Contains(t, r.body, "submitted without hold")
		require.Equal(t, 404, s.as(otherSecret, otherAccount).call("POST", "/api/stages/s/"+path+"?accountId=other", stepsBody("a")).status, path)
	}
}

func TestAnOpenStageHasAtMost10000Steps(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.open(`,"steps":[{"id":"first"}]`)
	ids := make([]string, 9_999)
	for i := range ids {
		ids[i] = fmt.Sprint("step-", i)
	}
	st := s.appendSteps(ids...)
	assert.Len(t, st.Steps, 10_000)
	r := s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody("more"))
	require.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "10001 steps; it may have 10000")
	require.Equal(t, 200, s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody(ids[:3]...)).status)
}

func TestAppendedStepsCountForTheBudget(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget = manager.Budget{Bytes: 64 << 10} })
	d := s.open("")
	large := func(id string) string {
		return `{"steps":[{"id":"` + id + `","data":{"run":{"commands":["` + strings.Repeat("x", 40<<10) + `"]}}}]}`
	}
	const path = "/api/stages/s/steps?accountId=acc"
	s.refused("bytes", "POST", path, strings.Replace(large("one"), "x", strings.Repeat("x", 40<<10), 1))
	require.Equal(t, 202, s.call("POST", path, large("one")).status)
	s.refused("bytes", "POST", path, large("two"))
	require.Equal(t, 200, s.call("POST", path, large("one")).status, "it needs no more")
	s.change("finish")
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	s.ended("s")
	s.submit(`{"id":"next","hold":{"lease_ms":60000}}`)
	require.Equal(t, 202, s.call("POST", "/api/stages/next/steps?accountId=acc", large("one")).status, "the end frees the budget")
}
