package clientfaults_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/task"
)

// The client sends an answer again if the manager's acknowledgement is dropped.
func TestAnswerArrivesAlthoughItsAcknowledgementIsDropped(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	srv.Inject(clientfaults.Fault{Call: "respond", Kind: clientfaults.DropResponse, Times: 1})
	c, err := client.New(srv.URL, srv.Account, srv.Secret)
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	d, err := c.Register(t.Context(), &client.Registration{DelegateName: "example"})
	require.NoError(t, err)
	sub := srv.Submit(&task.Task{Type: "greet"})
	got, err := c.Acquire(t.Context(), d.ID, task.Event{TaskID: sub.ID})
	require.NoError(t, err)

	require.NoError(t, c.Respond(t.Context(), d.ID, got,
		&task.Response{ID: got.ID, Type: got.Type, Code: task.OK, Data: json.RawMessage(`"hi"`)}))

	resp, err := sub.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, `"hi"`, string(resp.Data))
	assert.Equal(t, 2, sub.Attempts())
	assert.Len(t, sub.Responses(), 2)
}

func TestInvalidFaultsPanic(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	for name, f := range map[string]clientfaults.Fault{
		"probability": {Probability: 1.5}, "times": {Times: -1}, "kind": {Kind: 99}, "status": {Status: 42},
		"slow without a delay": {Kind: clientfaults.Slow},
	} {
		assert.Panics(t, func() { srv.Inject(f) }, name)
	}
}

// raw sends requests without the client.
type raw struct {
	t    *testing.T
	srv  *clientfaults.Server
	tok  string
	http *http.Client
}

func newServer(t *testing.T) (*clientfaults.Server, *raw) {
	t.Helper()
	srv := clientfaults.NewServer(clienttest.Config{})
	t.Cleanup(srv.Close)
	secret, err := token.ParseSecret(srv.Secret)
	require.NoError(t, err)
	tok, err := secret.Issue(srv.Account, time.Now(), time.Minute)
	require.NoError(t, err)
	return srv, &raw{t: t, srv: srv, tok: tok, http: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // so that net/http repeats no request
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

// ok is do for a call that must succeed.
func (r *raw) ok(call, body string) string {
	r.t.Helper()
	a := r.do(call, body)
	require.NoError(r.t, a.err, call)
	require.Equal(r.t, http.StatusOK, a.status, "%s: %s", call, a.body)
	return a.body
}

// register returns the id of a new delegate.
func (r *raw) register() string {
	r.t.Helper()
	var answer struct {
		Resource struct {
			DelegateID string `json:"delegateId"`
		} `json:"resource"`
	}
	require.NoError(r.t, json.Unmarshal([]byte(r.ok("POST /api/agent/delegates/register", `{"delegateName":"raw"}`)), &answer))
	require.NotEmpty(r.t, answer.Resource.DelegateID)
	return answer.Resource.DelegateID
}
