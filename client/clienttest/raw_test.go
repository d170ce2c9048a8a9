package clienttest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raw sends the requests of docs/protocol.md without the client.
type raw struct {
	t   *testing.T
	srv *clienttest.Server
	tok string
	// noReuse opens a connection for each request, so that Go's client repeats
	// none by itself.
	http *http.Client
}

func newServer(t *testing.T) (*clientfaults.Server, *raw) {
	t.Helper()
	return newServerWith(t, clienttest.Config{})
}

func newServerWith(t *testing.T, cfg clienttest.Config) (*clientfaults.Server, *raw) {
	t.Helper()
	srv := clientfaults.NewServer(cfg)
	t.Cleanup(srv.Close)
	return srv, newRaw(t, srv.Server)
}

func newRaw(t *testing.T, srv *clienttest.Server) *raw {
	t.Helper()
	secret, err := token.ParseSecret(srv.Secret)
	require.NoError(t, err)
	tok, err := secret.Issue(srv.Account, time.Now(), time.Minute)
	require.NoError(t, err)
	return &raw{t: t, srv: srv, tok: tok, http: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is a response with its body.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the request, or of reading the body
}

// request builds the request "METHOD path" with the account in its query.
func (r *raw) request(call, body string) *http.Request {
	r.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.srv.URL+path+sep+"accountId="+r.srv.Account,
		strings.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Authorization", "Delegate "+r.tok)
	req.Header.Set("Content-Type", "application/json")
	return req
}

func (r *raw) send(req *http.Request) answer {
	resp, err := r.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(b), err: err}
}

func (r *raw) do(call, body string) answer {
	r.t.Helper()
	return r.send(r.request(call, body))
}

// ok is do for a call that must be answered with 200 or 204.
func (r *raw) ok(call, body string) string {
	r.t.Helper()
	a := r.do(call, body)
	require.NoError(r.t, a.err, call)
	require.Contains(r.t, []int{http.StatusOK, http.StatusNoContent}, a.status, "%s: %s", call, a.body)
	return a.body
}

// register returns the id of a new delegate.
func (r *raw) register(types ...string) string {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{
		"accountId": r.srv.Account, "delegateName": "raw", "delegateRandomToken": r.srv.Secret,
		"delegateType": "DOCKER", "ng": true, "pollingModeEnabled": true, "heartbeatAsObject": true,
		"supportedTaskTypes": types, "tags": []string{"linux"}, "aFieldOfTheFuture": 1,
	})
	require.NoError(r.t, err)
	var answer struct {
		Resource struct {
			DelegateID string `json:"delegateId"`
		} `json:"resource"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.ok("POST /api/agent/delegates/register", string(body))), &answer))
	require.NotEmpty(r.t, answer.Resource.DelegateID)
	return answer.Resource.DelegateID
}

// pollV1 returns the ids that a poll of protocol v1 lists.
func (r *raw) pollV1(delegate string) []string {
	r.t.Helper()
	var answer struct {
		Events []struct {
			ID string `json:"delegateTaskId"`
		} `json:"delegateTaskEvents"`
	}
	body := r.ok("GET /api/agent/delegates/"+delegate+"/task-events", "")
	require.NoError(r.t, json.Unmarshal([]byte(body), &answer))
	ids := []string{}
	for _, e := range answer.Events {
		ids = append(ids, e.ID)
	}
	return ids
}

func (r *raw) acquireV1(delegate, id string) string {
	r.t.Helper()
	return r.ok("PUT /api/agent/v2/delegates/"+delegate+"/tasks/"+id+"/acquire?delegateInstanceId="+delegate, "")
}

func (r *raw) respondLegacy(delegate, id, body string) answer {
	r.t.Helper()
	return r.do("POST /api/agent/v2/tasks/"+id+"/delegates/"+delegate, body)
}

func assertStatus(t *testing.T, want int, a answer) {
	t.Helper()
	assert.NoError(t, a.err)
	assert.Equal(t, want, a.status, a.body)
}
