package manager_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// The queue tells what waits and runs by group, and why, with names.
func TestTheQueueIsShown(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, name := range []string{"plain-1", "plain-2", "plain-3"} {
		s.register(name, dockerTypes)
	}
	for _, name := range []string{"build-7", "build-8"} {
		id := s.register(name, dockerTypes, "gpu")
		s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
		s.submit(`{"id":"on-` + name + `","pipeline":"web","selectors":["gpu"]}`)
		s.take(id, initTask)
	}
	s.submit(`{"id":"w1","pipeline":"web","labels":{"env":"prod"},"selectors":["gpu"]}`)
	s.clock.Advance(90 * time.Second / 2)
	s.submit(`{"id":"w2","pipeline":"api","selectors":["gpu"]}`)
	s.ok("PUT", "/api/limits?accountId=acc", `{"group":"pipeline:web","max":5}`, nil)
	s.ok("PUT", "/api/limits?accountId=acc", `{"group":"pipeline:idle","max":3}`, nil)
	r := s.call("GET", "/api/queue?accountId=acc", "")
	require.Equal(t, 200, r.status, r.body)
	assert.JSONEq(t, `{"paused":false,"waiting":2,"running":2,
		"groups":[
			{"group":"account","waiting":2,"running":2,"oldest_waited_ms":45000},
			{"group":"pipeline:web","waiting":1,"running":2,"oldest_waited_ms":45000,"max":5,"used":2},
			{"group":"label:env=prod","waiting":1,"running":0,"oldest_waited_ms":45000},
			{"group":"pipeline:api","waiting":1,"running":0},
			{"group":"pipeline:idle","waiting":0,"running":0,"max":3}],
		"needs":[{"selectors":["gpu"],"waiting":1,"oldest_waited_ms":45000,
			"reason":"2 eligible delegates, all at capacity (2 slots)",
			"detail":"needs tag gpu: 3 of 5 delegates lack it, 2 are full (build-7, build-8)"},
			{"selectors":["gpu"],"waiting":1,"oldest_waited_ms":0,
			"reason":"2 eligible delegates, all at capacity (2 slots)",
			"detail":"needs tag gpu: 3 of 5 delegates lack it, 2 are full (build-7, build-8)"}]}`, r.body)

	s.ok("POST", "/api/pause?accountId=acc", `{"note":"new disks"}`, nil)
	s.clock.Advance(time.Second) // a view may be half a second old
	var shown struct {
		Paused bool
		Note   string
		Needs  []struct{ Reason string }
	}
	s.ok("GET", "/api/queue?accountId=acc", "", &shown)
	assert.True(t, shown.Paused)
	assert.Equal(t, "new disks", shown.Note)
	assert.Equal(t, "the account is paused (new disks), nothing is given to delegates until it is resumed", shown.Needs[0].Reason)
	for _, body := range []string{`{"note":"two\nlines"}`, `{"notes":"x"}`} {
		assert.Equal(t, 400, s.call("POST", "/api/pause?accountId=acc", body).status, body)
	}
}

func TestStagesAreAbortedTogether(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"a"}`)
	s.submit(`{"id":"b"}`)
	var out struct {
		Results []map[string]string `json:"results"`
	}
	s.ok("POST", "/api/abort?accountId=acc", `{"stages":["b","unknown","a"]}`, &out)
	assert.Equal(t, []map[string]string{
		{"id": "b", "status": "ABORTED"}, {"id": "unknown", "error_msg": `stage "unknown": not found`}, {"id": "a", "status": "ABORTED"},
	}, out.Results)
	assert.Equal(t, 400, s.call("POST", "/api/abort?accountId=acc", `{"stages":[]}`).status)
	many, err := json.Marshal(map[string][]string{"stages": make([]string, 1001)})
	require.NoError(t, err)
	assert.Equal(t, 400, s.call("POST", "/api/abort?accountId=acc", string(many)).status)
}

func TestATokenWithARoleDoesNoMore(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"a"}`)
	as := func(role api.Role) *server {
		other := *s
		var err error
		other.token, err = s.m.Token(account, role, time.Hour)
		require.NoError(t, err)
		return &other
	}
	reader, runner, operator := as(api.RoleRead), as(api.RoleRun), as(api.RoleOperate)
	for _, path := range []string{"/api/stages", "/api/stages/a", "/api/queue", "/api/delegates", "/api/limits", "/api/schedules", "/api/connectors"} {
		got := reader.call("GET", path+"?accountId=acc", "")
		assert.Equal(t, 200, got.status, path)
		assert.Equal(t, "read", got.header.Get(api.RoleHeader))
	}
	for _, call := range [][2]string{{"POST", "/api/stages"}, {"POST", "/api/tasks"}, {"POST", "/api/stages/a/abort"}, {"POST", "/api/abort"}} {
		r := reader.call(call[0], call[1]+"?accountId=acc", "{}")
		assert.Equal(t, 403, r.status, "%v", call)
		assert.Contains(t, r.body, "the token has the role read, and this call needs the role run")
		assert.NotEqual(t, 403, runner.call(call[0], call[1]+"?accountId=acc", "{}").status, "%v", call)
	}
	for _, call := range [][2]string{{"PUT", "/api/limits"}, {"POST", "/api/pause"}, {"DELETE", "/api/schedules/x"}, {"PUT", "/api/connectors/x"}, {"DELETE", "/api/connectors/x"}, {"POST", "/api/connectors/x/test"}, {"POST", "/api/delegates/" + d + "/drain"}} {
		for _, of := range []*server{reader, runner} {
			r := of.call(call[0], call[1]+"?accountId=acc", "{}")
			assert.Equal(t, 403, r.status, "%v", call)
			assert.Contains(t, r.body, "this call needs the role operate")
		}
		assert.NotEqual(t, 403, operator.call(call[0], call[1]+"?accountId=acc", "{}").status, "%v", call)
	}
	for _, call := range [][2]string{
		{"GET", "/api/agent/delegates/" + d + "/task-events"}, {"GET", "/api/executions/" + d + "/runner-events"}, {"GET", "/api/executions/task/request"},
		{"POST", "/api/agent/delegates/register"},
	} {
		r := operator.call(call[0], call[1]+"?accountId=acc", "{}")
		assert.Equal(t, 403, r.status, "%v", call)
		assert.Contains(t, r.body, "use a token without a role")
	}
	assert.Empty(t, s.call("GET", "/api/stages?accountId=acc", "").header.Get(api.RoleHeader))
	_, err := s.m.Token("unknown", api.RoleRead, time.Hour)
	require.ErrorContains(t, err, `there is no account "unknown"`)
	_, err = s.m.Token(account, "", time.Hour)
	require.ErrorContains(t, err, "the roles are read, run and operate")
}
