package manager_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

const testTypes = "connector/test"

// The manager keeps connectors, each for its account, and refuses values of secrets without quoting them (rules S1, G3).
func TestConnectorsAreKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	var got api.Connector
	s.ok("PUT", "/api/connectors/github?accountId=acc", `{"kind":"github","secrets":{"token":"vault://kv/ci#token"},"options":{"repository":"acme/app"},"selectors":["web",""]}`, &got)
	assert.Equal(t, "github", got.ID)
	assert.Equal(t, []string{"web"}, got.Selectors)
	assert.WithinDuration(t, s.clock.Now(), got.UpdatedAt, time.Second)
	var replaced api.Connector
	s.ok("PUT", "/api/connectors/github?accountId=acc", `{"kind":"gitea","address":"https://git.example"}`, &replaced)
	assert.Empty(t, replaced.Secrets)
	s.ok("PUT", "/api/connectors/a%2Fb?accountId=acc", `{"kind":"http"}`, nil)
	var list struct{ Connectors []api.Connector }
	s.ok("GET", "/api/connectors?accountId=acc", "", &list)
	require.Len(t, list.Connectors, 2)
	assert.Equal(t, "a/b", list.Connectors[0].ID)
	s.ok("GET", "/api/connectors/github?accountId=acc", "", &got)
	assert.Equal(t, "gitea", got.Kind)

	other := s.as(otherSecret, otherAccount)
	assert.Equal(t, 404, other.call("GET", "/api/connectors/github?accountId="+otherAccount, "").status)
	assert.Equal(t, `{"connectors":[]}`, other.call("GET", "/api/connectors?accountId="+otherAccount, "").body)
	assert.Equal(t, 404, other.call("DELETE", "/api/connectors/github?accountId="+otherAccount, "").status)

	for _, value := range []string{"visibly-fake-token", "https://user:visibly-fake-token@git.example", "env://visibly-fake-token }}", "${{secrets.visibly-fake-token}}", ""} {
		r := s.call("PUT", "/api/connectors/x?accountId=acc", asJSON(t, map[string]any{"kind": "git", "secrets": map[string]string{"token": value}}))
		assert.Equal(t, 400, r.status, value)
		assert.Contains(t, r.body, "secrets.token is not a reference")
		assert.NotContains(t, r.body, "visibly-fake-token")
	}
	s.ok("DELETE", "/api/connectors/github?accountId=acc", "", nil)
	assert.Equal(t, 404, s.call("DELETE", "/api/connectors/github?accountId=acc", "").status)
	assert.Equal(t, 404, s.call("POST", "/api/connectors/github/test?accountId=acc", "").status)
}

// There are at most 1,000 connectors in an account. More are refused, replacing one is not.
func TestConnectorsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 1000 {
		_, err := s.m.SetConnector(t.Context(), account, api.Connector{ID: fmt.Sprint(i), Kind: "http"})
		require.NoError(t, err)
	}
	r := s.call("PUT", "/api/connectors/more?accountId=acc", `{"kind":"http"}`)
	assert.Equal(t, 429, r.status)
	assert.Contains(t, r.body, "connectors of the account: there are 1000; remove some")
	s.ok("PUT", "/api/connectors/7?accountId=acc", `{"kind":"git"}`, nil)
	_, err := s.m.SetConnector(t.Context(), otherAccount, api.Connector{ID: "own", Kind: "http"})
	require.NoError(t, err)
}

// tested starts the test of a connector. The channel gets its result.
func (s *server) tested(id, body string) <-chan reply {
	out := make(chan reply, 1)
	go func() {
		r, err := s.do(s.t.Context(), "POST", "/api/connectors/"+id+"/test?accountId=acc", body)
		if err != nil {
			r.body = err.Error()
		}
		out <- r
	}()
	return out
}

// workOn waits for a single task of a delegate and acquires it.
func (s *server) workOn(delegate string) (got taken) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return len(s.poll(delegate).Events) > 0 }, 30*time.Second, 5*time.Millisecond)
	return s.take(delegate, testTypes)
}

// A test runs on the delegate of the caller's choice, which gets references, and its answer is the answer of the call (rule G3).
func TestAConnectorIsTestedFromAChosenDelegate(t *testing.T) {
	t.Parallel()
	s := start(t)
	first, second := s.register("first", []string{testTypes}, "inside"), s.register("second", []string{testTypes}, "outside")
	s.ok("PUT", "/api/connectors/web?accountId=acc", `{"kind":"http","address":"https://x","secrets":{"token":"env://TOK"},"selectors":["inside"]}`, nil)
	const fine = `{"code":"OK","data":{"ok":true,"steps":[{"name":"connection","ok":true,"message":"it works","millis":3}]}}`
	for body, delegate := range map[string]string{
		"": first, `{"delegate":"second"}`: second, `{"delegate":"SECOND"}`: second, `{"delegate":"` + second + `"}`: second, `{"selectors":["outside"]}`: second,
	} {
		result := s.tested("web", body)
		got := s.workOn(delegate)
		var data connectorTask
		require.NoError(t, json.Unmarshal(got.Data, &data))
		assert.Equal(t, map[string]string{"token": "${{secrets.env://TOK}}"}, data.Connector.Secrets)
		assert.Equal(t, "https://x", data.Connector.Address)
		assert.Equal(t, int64(20_000), data.TimeoutMS)
		require.Equal(t, 204, s.respond(delegate, got.ID, fine))
		r := <-result
		require.Equal(t, 200, r.status, r.body)
		var test api.ConnectorTest
		require.NoError(t, json.Unmarshal([]byte(r.body), &test))
		assert.Equal(t, api.ConnectorTest{
			Connector: "web", OK: true, DelegateID: delegate, TaskID: got.ID, Steps: []api.ConnectorStep{{Name: "connection", OK: true, Message: "it works", Millis: 3}},
		}, test)
	}
	r := s.call("POST", "/api/connectors/web/test?accountId=acc", `{"delegate":"third"}`)
	assert.Equal(t, 404, r.status)
	assert.Contains(t, r.body, `delegate \"third\"`)
}

type connectorTask struct {
	Connector struct {
		Address string
		Secrets map[string]string
	}
	TimeoutMS int64 `json:"timeout_ms"`
}

// A test that cannot run is a result too: it names the reason (rule G3).
func TestATestThatCannotRunSaysWhy(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", []string{testTypes})
	s.ok("PUT", "/api/connectors/web?accountId=acc", `{"kind":"http"}`, nil)
	last := func(r reply) api.ConnectorStep {
		require.Equal(t, 200, r.status, r.body)
		var test api.ConnectorTest
		require.NoError(t, json.Unmarshal([]byte(r.body), &test))
		require.NotEmpty(t, test.Steps)
		assert.False(t, test.OK)
		return test.Steps[len(test.Steps)-1]
	}
	for answer, want := range map[string][2]string{
		`{"code":"FAILED","data":{"error_msg":"secret reference ${{secrets.env://TOK}}: there is no such secret"}}`:  {"secrets", "there is no such secret"},
		`{"code":"FAILED","data":{"error_msg":"the handler has panicked"}}`:                                          {"delegate", "the delegate could not run the test"},
		`{"code":"OK","data":{"ok":true}}`:                                                                           {"delegate", "is not the result of a test"},
		`{"code":"OK","data":"x"}`:                                                                                   {"delegate", "is not the result of a test"},
		`{"code":"OK","data":{"ok":false,"steps":[{"name":"tls","message":"` + strings.Repeat("x", 10_000) + `"}]}}`: {"tls", strings.Repeat("x", 1000)},
	} {
		result := s.tested("web", "")
		got := s.workOn(d)
		require.Equal(t, 204, s.respond(d, got.ID, answer))
		step := last(<-result)
		assert.Equal(t, want[0], step.Name, answer)
		assert.Contains(t, step.Message, want[1])
		assert.Less(t, len(step.Message), 5000)
	}
	result := s.tested("web", `{"selectors":["nowhere"]}`)
	require.Eventually(t, func() bool {
		s.clock.Advance(16 * time.Second) // it may come before the submission
		return len(result) > 0
	}, 30*time.Second, 50*time.Millisecond)
	step := last(<-result)
	assert.Equal(t, "delegate", step.Name)
	assert.Contains(t, step.Message, `no delegate has the tags "nowhere"`)
}
