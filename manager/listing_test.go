package manager_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

type page struct {
	Stages []api.Stage
	Next   string
}

func (s *server) page(query string) (p page, ids []string) {
	s.t.Helper()
	s.ok("GET", "/api/stages?accountId=acc"+query, "", &p)
	for _, st := range p.Stages {
		ids = append(ids, st.ID)
	}
	return p, ids
}

// A list of stages has pages and filters. A page continues after the previous one, also when
// its last stage is forgotten.
func TestStagesAreListedInPages(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MaxFinished = 1 })
	for i := range 600 { // more than one look at the list
		s.submit(fmt.Sprintf(`{"id":"s%03d","pipeline":"p%d","labels":{"n":"%d","all":"yes"},"init":{"envs":{}}}`, i, i%2, i%3))
	}
	var all []string
	for next := ""; ; {
		p, ids := s.page("&limit=250" + next)
		all = append(all, ids...)
		if p.Next == "" {
			assert.Len(t, ids, 100)
			break
		}
		require.Len(t, ids, 250)
		next = "&after=" + p.Next
	}
	require.Len(t, all, 600)
	for i, id := range all {
		require.Equal(t, fmt.Sprintf("s%03d", i), id)
	}
	assert.Len(t, s.m.Stages(account), 600)

	p, ids := s.page("&pipeline=p1&label=n=2&label=all=yes&limit=2")
	assert.Equal(t, []string{"s005", "s011"}, ids)
	assert.Equal(t, 6, p.Stages[0].Place)
	p, ids = s.page("&pipeline=p1&label=n=2&label=all=yes&limit=100&after=" + p.Next)
	assert.Len(t, ids, 98)
	assert.Empty(t, p.Next, "the last page is full, and nothing follows")
	_, ids = s.page("&status=RUNNING")
	assert.Empty(t, ids)

	p, _ = s.page("&limit=1")
	for _, id := range []string{"s000", "s001", "s003"} {
		_, err := s.m.AbortStage(t.Context(), account, id)
		require.NoError(t, err)
	}
	_, err := s.m.Stage(account, "s000")
	require.ErrorIs(t, err, manager.ErrNotFound, "the manager remembers one stage that has ended")
	_, ids = s.page("&limit=2&after=" + p.Next)
	assert.Equal(t, []string{"s002", "s003"}, ids)
	_, ids = s.page("&status=ABORTED")
	assert.Equal(t, []string{"s003"}, ids)
	assert.Len(t, s.m.Stages(account), 598)
}

// A misspelt parameter must not select everything without notice.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", nil)
	s.submit(`{"id":"s","steps":[{}]}`)
	for call, want := range map[string]string{
		"GET /api/stages?accountId=acc&stauts=QUEUED":            `unknown query parameter \"stauts\"; did you mean \"status\"?`,
		"GET /api/stages?accountId=acc&xyzzyx=1":                 "this call has accountId, status, pipeline, label, limit, after",
		"GET /api/stages?accountId=acc&status=queued":            "status is",
		"GET /api/stages?accountId=acc&limit=0":                  "limit is",
		"GET /api/stages?accountId=acc&limit=1001":               "limit is",
		"GET /api/stages?accountId=acc&after=s":                  "after is",
		"GET /api/stages?accountId=acc&label=a":                  "label is",
		"GET /api/stages?accountId=acc&limit=1&limit=2":          `has \"limit\" twice`,
		"GET /api/stages?accountId=acc&limit=%zz":                "the query cannot be read",
		"GET /api/stages/s?accountId=acc&waits=1":                `did you mean \"wait\"?`,
		"GET /api/tasks/s?accountId=acc&Wait=1":                  `did you mean \"wait\"?`,
		"GET /api/events?accountId=acc&sinc=1":                   `did you mean \"since\"?`,
		"GET /api/delegates?accountId=acc&accountID=acc":         `did you mean \"accountId\"?`,
		"POST /api/stages?accountId=acc&wait=1":                  "unknown query parameter",
		"PUT /api/schedules/x?accountId=acc&dry=1":               "unknown query parameter",
		"POST /api/delegates/" + d + "/drain?accountId=acc&on=1": "unknown query parameter",
	} {
		var method, path string
		_, err := fmt.Sscan(call, &method, &path)
		require.NoError(t, err)
		r := s.call(method, path, `{"steps":[{}]}`)
		assert.Equal(t, 400, r.status, call)
		assert.Contains(t, r.body, want, call)
	}
	assert.Equal(t, 200, s.call("GET", "/api/agent/delegates/"+d+"/task-events?accountId=acc&foreign=1", "").status, "delegates may send more")
}

// A listing looks at a part of the stages at a time: others use the manager meanwhile.
func TestAListingEndsItsPageAtManyParts(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 5 {
		steps := make([]api.StepRequest, 9_000)
		_, err := s.m.SubmitStage(t.Context(), account, api.StageRequest{ID: fmt.Sprint("s", i), Steps: steps})
		require.NoError(t, err)
	}
	p, ids := s.page("")
	assert.Equal(t, []string{"s0", "s1"}, ids)
	p, ids = s.page("&after=" + p.Next)
	assert.Equal(t, []string{"s2", "s3"}, ids)
	_, ids = s.page("&after=" + p.Next)
	assert.Equal(t, []string{"s4"}, ids)
}
