package pipeline_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// serve serves the API of a service for one account without tokens.
func serve(tb testing.TB, s *pipeline.Service) string {
	tb.Helper()
	server := httptest.NewServer(s.Handler(func(next http.Handler) http.Handler { return next }, func(*http.Request) string { return account }))
	tb.Cleanup(server.Close)
	return server.URL
}

// call makes a call and returns the status and the body.
func call(tb testing.TB, method, url, body string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	require.NoError(tb, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, resp.Body.Close()) }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	return resp.StatusCode, string(b)
}

func encode(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	require.NoError(tb, err)
	return string(b)
}

func TestTheAPIStartsFollowsAndListsRuns(t *testing.T) {
	t.Parallel()
	url := serve(t, newService(t, newManager(t, 2)))
	status, body := call(t, "POST", url+"/api/runs", encode(t, api.RunRequest{ID: "one", YAML: hello, Labels: map[string]string{"team": "red"}, User: "ann"}))
	require.Equal(t, 202, status, body)

	// The stream ends with the run, and has each node as it was last.
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/runs/one/events", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	nodes := map[string]string{}
	var last api.Run
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var c api.RunChange
		require.NoError(t, json.Unmarshal([]byte(data), &c))
		last = c.Run
		for _, n := range c.Nodes {
			nodes[n.Path] = n.Status
		}
	}
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "SUCCEEDED", last.Status)
	assert.Equal(t, "SUCCEEDED", nodes["pipeline.stages.build.spec.execution.steps.test"], nodes)

	status, body = call(t, "GET", url+"/api/runs/one?wait=60", "")
	require.Equal(t, 200, status)
	assert.Contains(t, body, `"step_id":"test"`)
	assert.Contains(t, body, `"user":"ann"`)
	status, body = call(t, "GET", url+"/api/runs?label=team=red&status=SUCCEEDED", "")
	require.Equal(t, 200, status)
	assert.Contains(t, body, `"id":"one"`)
	status, body = call(t, "GET", url+"/api/runs/one/definition", "")
	require.Equal(t, 200, status)
	assert.Equal(t, hello, body)

	status, body = call(t, "POST", url+"/api/runs/one/again", "")
	require.Equal(t, 202, status, body)
	assert.Contains(t, body, `"number":2`)
	assert.Contains(t, body, `"team":"red"`)
	var again api.Run
	require.NoError(t, json.Unmarshal([]byte(body), &again))
	_, body = call(t, "GET", url+"/api/runs/"+again.ID+"?wait=60", "")
	assert.Contains(t, body, `"status":"SUCCEEDED"`)
}

func TestTheAPIRefusesBadCallsWithTheReason(t *testing.T) {
	t.Parallel()
	url := serve(t, newService(t, newManager(t, 1)))
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/api/runs", `{"yaml":""}`, 400, "yaml is empty"},
		{"POST", "/api/runs", `{"yml":""}`, 400, `unknown field \"yml\"`},
		{"POST", "/api/runs", `{"yaml":"pipeline: {identifier: a}"}`, 400, `"problems":[`},
		{"POST", "/api/runs", `{"yaml":"x","id":"a b"}`, 400, "id may have 64"},
		{"GET", "/api/runs/none", "", 404, "run none: not found"},
		{"GET", "/api/runs?colour=blue", "", 400, "unknown parameter"},
		{"GET", "/api/runs?limit=5000", "", 400, "use 1 to 50"},
		{"POST", "/api/runs/none/abort", "", 404, "not found"},
		{"GET", "/api/none", "", 404, "there is no /api/none"},
	} {
		status, body := call(t, test.method, url+test.path, test.body)
		assert.Equal(t, test.status, status, "%s %s: %s", test.method, test.path, body)
		assert.Contains(t, body, test.want)
	}
}

func TestAnAccountHasABoundedNumberOfActiveRuns(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}}) // without a delegate, runs wait
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	url := serve(t, newService(t, m, func(c *pipeline.Config) { c.MaxActive = 2 }))
	start := func(id string) (int, string) {
		return call(t, "POST", url+"/api/runs", encode(t, api.RunRequest{ID: id, YAML: hello}))
	}
	for _, id := range []string{"one", "two"} {
		status, body := start(id)
		require.Equal(t, 202, status, body)
	}
	status, body := start("three")
	assert.Equal(t, 429, status)
	assert.Contains(t, body, "the account has 2 active runs, and may have 2")
	status, _ = start("one")
	assert.Equal(t, 202, status, "a repeated call must return its run")
	status, body = call(t, "POST", url+"/api/runs/one/abort", "")
	require.Equal(t, 200, status, body)
	status, body = call(t, "GET", url+"/api/runs/one?wait=60", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"status":"ABORTED"`)
	status, body = start("three")
	assert.Equal(t, 202, status, body)
}
