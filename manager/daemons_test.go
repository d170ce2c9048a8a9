package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// daemonSet is a daemon set on the wire.
type daemonSet struct {
	ID         string          `json:"daemon_set_id"`
	Type       string          `json:"type"`
	Config     json.RawMessage `json:"config"`
	SkipUpdate bool            `json:"skip_update"`
	TaskIDs    []string        `json:"task_ids"`
}

// reconcile reports daemon sets as healthy, and returns the answer.
func (s *server) reconcile(delegate string, healthy ...string) (out []daemonSet) {
	s.t.Helper()
	list := []string{}
	for _, id := range healthy {
		list = append(list, fmt.Sprintf(`{"daemon_set_id":%q,"type":"x","config":{},"healthy":true}`, id))
	}
	var in struct{ Data []daemonSet }
	s.ok("POST", "/api/daemons/"+delegate+"/reconcile?accountId=acc", `{"data":[`+strings.Join(list, ",")+`]}`, &in)
	require.NotNil(s.t, in.Data)
	return in.Data
}

func (s *server) putDaemons(id, body string) (out api.DaemonSet) {
	s.t.Helper()
	s.ok("PUT", "/api/daemon-sets/"+id+"?accountId=acc", body, &out)
	return out
}

// Rule G2: the wire forms of docs/protocol.md, to the letter. Other delegates decode every answer as JSON, also an empty one.
func TestTheWireOfDaemonSets(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", []string{"custom"}, "linux")
	at := "/api/daemons/" + d + "/"
	assert.JSONEq(t, `{"data":[]}`, s.call("POST", at+"reconcile?accountId=acc", `{"data":[]}`).body)
	assert.JSONEq(t, `{"requests":[]}`, s.call("POST", at+"tasks?accountId=acc", `{"task_ids":["none"]}`).body)

	s.putDaemons("set", `{"type":"watch","config":{"image":"x","envs":["A=b"]},"selectors":["LINUX"]}`)
	assert.JSONEq(t, `{"data":[{"daemon_set_id":"set","config":{"image":"x","envs":["A=b"]},"skip_update":false,"task_ids":[],"type":"watch"}]}`,
		s.call("POST", at+"reconcile?accountId=acc", `{"data":[{"daemon_set_id":"set","type":"watch","config":{"image":"x"},"healthy":true}]}`).body)
	s.ok("PUT", "/api/daemon-sets/set/tasks/t1?accountId=acc", `{"data":{"a":1},"secrets":[{"id":"k","type":"secret/static","data":{"v":2}}]}`, nil)
	assert.JSONEq(t, `{"requests":[{"id":"t1","account":"acc",
		"task":{"id":"t1","type":"daemonset/tasks/assign",
			"data":"eyJkYWVtb25fdGFza19pZCI6InQxIiwicGFyYW1zIjp7ImJpbmFyeV9kYXRhIjoiZXlKaElqb3hmUT09In0sInR5cGUiOiJ3YXRjaCJ9"},
		"secrets":[{"id":"k","type":"secret/static","data":"eyJ2IjoyfQ=="}]}]}`,
		s.call("POST", at+"tasks?accountId=acc", `{"task_ids":["t1","t1","other"]}`).body)
	assert.Equal(t, []string{"t1"}, s.reconcile(d, "set")[0].TaskIDs)
	assert.Equal(t, 404, s.call("POST", "/api/daemons/unknown/reconcile?accountId=acc", `{"data":[]}`).status)
}

// Rule G2: a daemon set runs on the delegates with its tags, with one daemon set of a type on each. Its tasks are on all of
// them, or on one that is neither lost nor draining.
func TestWhereDaemonSetsAndTasksAre(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, b, c := s.register("a", nil, "linux"), s.register("b", nil, "linux", "large"), s.register("c", nil, "windows")
	s.putDaemons("one", `{"type":"watch","selectors":["linux"]}`)
	s.putDaemons("two", `{"type":"watch","config":{"image":"w"}}`)
	s.putDaemons("three", `{"type":"other","selectors":["b"],"hold":true}`)
	ids := func(d string) (out []string) {
		for _, set := range s.reconcile(d) {
			out = append(out, set.ID)
		}
		return out
	}
	assert.Equal(t, []string{"one"}, ids(a))
	assert.Equal(t, []string{"one", "three"}, ids(b))
	assert.Equal(t, []string{"two"}, ids(c))
	assert.True(t, s.reconcile(b)[1].SkipUpdate)
	var two api.DaemonSet
	s.ok("GET", "/api/daemon-sets/two?accountId=acc", "", &two)
	require.Len(t, two.Delegates, 3)
	assert.Contains(t, two.Delegates[0].Error, `"one"`)
	assert.Empty(t, two.Delegates[2].Error)

	s.ok("PUT", "/api/daemon-sets/one/tasks/all?accountId=acc", `{"data":1}`, nil)
	s.ok("PUT", "/api/daemon-sets/one/tasks/big?accountId=acc", `{"data":1,"selectors":["large"]}`, nil)
	for i := range 20 {
		s.ok("PUT", fmt.Sprintf("/api/daemon-sets/one/tasks/s%02d?accountId=acc", i), `{"spread":"one"}`, nil)
	}
	of := func(d string) map[string]bool {
		out := map[string]bool{}
		for _, id := range s.reconcile(d)[0].TaskIDs {
			out[id] = true
		}
		return out
	}
	onA, onB := of(a), of(b)
	assert.True(t, onA["all"] && onB["all"])
	assert.True(t, !onA["big"] && onB["big"])
	for i := range 20 {
		id := fmt.Sprintf("s%02d", i)
		assert.NotEqual(t, onA[id], onB[id], id)
	}
	assert.Greater(t, len(onA), 3)
	assert.Greater(t, len(onB), 4)

	s.ok("POST", "/api/delegates/"+a+"/drain?accountId=acc", "", nil)
	assert.Equal(t, map[string]bool{"all": true}, of(a))
	assert.Len(t, of(b), 22)
}

// Rule G2: the state of a daemon set on each delegate comes from its last report, also after a restart of the manager.
func TestReportsOfDaemonSetsAreKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", nil)
	s.putDaemons("set", `{"type":"watch"}`)
	state := func() api.DaemonState {
		var list struct {
			Sets []api.DaemonSet `json:"daemon_sets"`
		}
		s.ok("GET", "/api/daemon-sets?accountId=acc", "", &list)
		require.Len(t, list.Sets, 1)
		require.Len(t, list.Sets[0].Delegates, 1)
		return list.Sets[0].Delegates[0]
	}
	assert.Zero(t, state().ReportedAt)
	long := strings.Repeat("é", 10_000)
	s.ok("POST", "/api/daemons/"+d+"/reconcile?accountId=acc", `{"data":[{"daemon_set_id":"set","healthy":false,"error":"no program `+long+`"},{"daemon_set_id":"gone"}]}`, nil)
	got := state()
	assert.False(t, got.Healthy)
	assert.Contains(t, got.Error, "no program")
	assert.Less(t, len(got.Error), 2<<10)
	assert.NotZero(t, got.ReportedAt)
	s.reconcile(d, "set")
	got = state()
	assert.True(t, got.Healthy)
	assert.Empty(t, got.Error)
	s.reconcile(d)
	assert.False(t, state().Healthy, "the delegate does not run it any more")
}

// A held report is answered when the daemon sets of the delegate change, and by nothing else.
func TestAReportIsHeldUntilAChange(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", nil)
	path := "/api/daemons/" + d + "/reconcile?accountId=acc&wait=30"
	first := s.call("POST", path, `{"data":[]}`)
	cursor := first.header.Get("Dlite-Cursor")
	require.NotEmpty(t, cursor)
	held := make(chan reply, 1)
	go func() {
		r, err := s.do(context.Background(), "POST", path+"&since="+cursor, `{"data":[]}`)
		assert.NoError(t, err)
		held <- r
	}()
	s.waits(2) // the end of the hold, and the next look at tags
	select {
	case r := <-held:
		require.Fail(t, "the report was not held", "%+v", r)
	default:
	}
	s.putDaemons("set", `{"type":"watch"}`)
	r := <-held
	assert.Contains(t, r.body, `"set"`)
	assert.NotEqual(t, cursor, r.header.Get("Dlite-Cursor"))
}

// Wrong daemon sets and tasks are refused with the name of the member, and those beyond the budget with 429.
func TestWrongDaemonSetsAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget.Daemons = 3 })
	for body, want := range map[string]string{
		`{}`:                                           "type",
		`{"type":"x","config":[]}`:                     "config",
		`{"type":"x","id":"other"}`:                    "other",
		`{"type":"x","selector":["a"]}`:                "selectors",
		`{"type":"x","secrets":[{}]}`:                  "secrets[0]",
		`{"type":"x","secrets":[null]}`:                "secrets[0]",
		`{"type":"` + strings.Repeat("x", 2000) + `"}`: "type",
	} {
		r := s.call("PUT", "/api/daemon-sets/s?accountId=acc", body)
		assert.Equal(t, http.StatusBadRequest, r.status, body)
		assert.Contains(t, r.body, want, body)
	}
	s.putDaemons("s", `{"type":"x"}`)
	for body, want := range map[string]string{
		`{"spread":"two"}`:           "spread",
		`{"data":1,"binary":"eA=="}`: "binary",
		`{"id":"other"}`:             "other",
	} {
		r := s.call("PUT", "/api/daemon-sets/s/tasks/t?accountId=acc", body)
		assert.Equal(t, http.StatusBadRequest, r.status, body)
		assert.Contains(t, r.body, want, body)
	}
	s.ok("PUT", "/api/daemon-sets/s/tasks/t?accountId=acc", `{"data":1}`, nil)
	s.ok("PUT", "/api/daemon-sets/s/tasks/t?accountId=acc", `{"data":1}`, nil)
	assert.Equal(t, http.StatusConflict, s.call("PUT", "/api/daemon-sets/s/tasks/t?accountId=acc", `{"data":2}`).status)
	assert.Equal(t, http.StatusNotFound, s.call("PUT", "/api/daemon-sets/none/tasks/u?accountId=acc", `{"data":2}`).status)
	s.ok("PUT", "/api/daemon-sets/s/tasks/u?accountId=acc", `{"data":1}`, nil)
	r := s.call("PUT", "/api/daemon-sets/s/tasks/v?accountId=acc", `{"data":1}`)
	assert.Equal(t, http.StatusTooManyRequests, r.status)
	assert.Contains(t, r.body, "daemons")
	s.ok("PUT", "/api/daemon-sets/s?accountId=acc", `{"type":"y"}`, nil) // a replacement needs no room
	s.ok("DELETE", "/api/daemon-sets/s/tasks/u?accountId=acc", "", nil)
	s.ok("PUT", "/api/daemon-sets/s/tasks/v?accountId=acc", `{"data":1}`, nil)
	assert.Equal(t, http.StatusNotFound, s.call("DELETE", "/api/daemon-sets/s/tasks/u?accountId=acc", "").status)
	s.ok("DELETE", "/api/daemon-sets/s?accountId=acc", "", nil)
	assert.Equal(t, http.StatusNotFound, s.call("GET", "/api/daemon-sets/s?accountId=acc", "").status)
	s.putDaemons("t", `{"type":"x"}`)
	s.ok("PUT", "/api/daemon-sets/t/tasks/t?accountId=acc", `{"data":2}`, nil) // the id is free again
	assert.Equal(t, http.StatusNotFound, s.as(otherSecret, otherAccount).call("GET", "/api/daemon-sets/t?accountId=other", "").status)
}
