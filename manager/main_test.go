package manager_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account      = "acc"
	fakeSecret   = "00000000000000000000000000000001"
	otherAccount = "other"
	otherSecret  = "00000000000000000000000000000002"
)

var dockerTypes = []string{"CI_DOCKER_INITIALIZE_TASK", "CI_DOCKER_EXECUTE_TASK", "CI_DOCKER_CLEANUP_TASK"}

// clock is a manual clock.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[chan time.Time]time.Time
}

func newClock() *clock {
	return &clock{now: time.Unix(1_700_000_000, 0).UTC(), alarms: map[chan time.Time]time.Time{}}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) At(at time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if at.After(c.now) {
		c.alarms[ch] = at
	} else {
		ch <- c.now
	}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, ch)
	}
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.alarms {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.alarms, ch)
		}
	}
}

// server is a manager behind real HTTP.
type server struct {
	t     testing.TB
	m     *manager.Manager
	url   string
	clock *clock
	http  *http.Client
	token string
}

func start(t testing.TB, change ...func(*manager.Config)) *server {
	t.Helper()
	s := &server{t: t, clock: newClock()}
	cfg := manager.Config{
		Accounts: map[string]string{account: fakeSecret, otherAccount: otherSecret},
		Clock:    s.clock,
		Gap:      -1, // the clock jumps
	}
	for _, f := range change {
		f(&cfg)
	}
	withStore(t, &cfg)
	var err error
	s.m, err = manager.New(cfg)
	require.NoError(t, err)
	ts := httptest.NewServer(s.m)
	s.url, s.http = ts.URL, ts.Client()
	t.Cleanup(func() {
		assert.NoError(t, s.m.Close())
		ts.Close()
	})
	s.token = issue(t, fakeSecret, account, s.clock.Now(), 24*time.Hour)
	return s
}

// as returns the server with a token of another account.
func (s *server) as(secret, account string) *server {
	other := *s
	other.token = issue(s.t, secret, account, s.clock.Now(), 24*time.Hour)
	return &other
}

func issue(t testing.TB, secret, account string, now time.Time, ttl time.Duration) string {
	t.Helper()
	parsed, err := token.ParseSecret(secret)
	require.NoError(t, err)
	tok, err := parsed.Issue(account, now, ttl)
	require.NoError(t, err)
	return tok
}

// reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   string
}

// call makes a request in the form of protocol v1.
func (s *server) call(method, path, body string) reply {
	s.t.Helper()
	r, err := s.do(s.t.Context(), method, path, body)
	require.NoError(s.t, err)
	return r
}

func (s *server) do(ctx context.Context, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Delegate "+s.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(bytes.TrimSpace(b))}, err
}

// ok makes a request that must succeed and decodes its answer.
func (s *server) ok(method, path, body string, into any) {
	s.t.Helper()
	r := s.call(method, path, body)
	require.Less(s.t, r.status, 300, "%s %s: %s", method, path, r.body)
	if into != nil {
		require.NoError(s.t, json.Unmarshal([]byte(r.body), into), "%s %s: %s", method, path, r.body)
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// register registers a delegate and returns its id.
func (s *server) register(name string, types []string, tags ...string) string {
	s.t.Helper()
	var out struct {
		Resource struct{ DelegateID string }
	}
	s.ok("POST", "/api/agent/delegates/register?accountId=acc", asJSON(s.t, map[string]any{
		"accountId": account, "delegateName": name, "ng": true, "pollingModeEnabled": true, "heartbeatAsObject": true,
		"supportedTaskTypes": types, "tags": tags,
	}), &out)
	require.NotEmpty(s.t, out.Resource.DelegateID)
	return out.Resource.DelegateID
}

func (s *server) beat(id string) int {
	s.t.Helper()
	return s.call("POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", `{"delegateId":"`+id+`"}`).status
}

type list struct {
	Events []struct {
		TaskID   string `json:"delegateTaskId"`
		TaskType string
	} `json:"delegateTaskEvents"`
	Aborted []string `json:"abortedTaskIds"`
}

func (s *server) poll(id string) (l list) {
	s.t.Helper()
	s.ok("GET", "/api/agent/delegates/"+id+"/task-events?accountId=acc&wait=0", "", &l)
	return l
}

// pending returns the id of the only task that waits for a delegate, and checks the
// task's type.
func (s *server) pending(id, taskType string) string {
	s.t.Helper()
	l := s.poll(id)
	require.Len(s.t, l.Events, 1)
	require.Equal(s.t, taskType, l.Events[0].TaskType)
	return l.Events[0].TaskID
}

// taken is an acquired task.
type taken struct {
	ID      string
	Type    string
	Timeout int64
	Data    json.RawMessage
}

func (s *server) acquire(id, task string) reply {
	s.t.Helper()
	return s.call("PUT", "/api/agent/v2/delegates/"+id+"/tasks/"+task+"/acquire?accountId=acc&delegateInstanceId="+id, "")
}

// take acquires the only task that waits for a delegate.
func (s *server) take(id, taskType string) (t taken) {
	s.t.Helper()
	r := s.acquire(id, s.pending(id, taskType))
	require.Equal(s.t, 200, r.status, r.body)
	require.NoError(s.t, json.Unmarshal([]byte(r.body), &t))
	return t
}

func (s *server) respond(id, task, body string) int {
	s.t.Helper()
	return s.call("POST", "/api/agent/v2/tasks/"+task+"/delegates/"+id+"?accountId=acc", body).status
}

const succeeded = `{"code":"OK","data":{"command_execution_status":"SUCCESS"}}`

// pass acquires a delegate's only task and answers it.
func (s *server) pass(id, taskType, body string) taken {
	s.t.Helper()
	t := s.take(id, taskType)
	require.Equal(s.t, 204, s.respond(id, t.ID, body))
	return t
}

// withInit adds an init to the JSON of a stage without steps and init, because the
// API refuses an empty stage.
func withInit(body string) string {
	if strings.Contains(body, `"steps":`) || strings.Contains(body, `"init":`) {
		return body
	}
	return strings.Replace(strings.TrimSuffix(body, "}")+`,"init":{"envs":{}}}`, "{,", "{", 1)
}

// submit submits a stage, see withInit.
func (s *server) submit(body string) (st api.Stage) {
	s.t.Helper()
	s.ok("POST", "/api/stages?accountId=acc", withInit(body), &st)
	return st
}

func (s *server) stage(id string) (st api.Stage) {
	s.t.Helper()
	s.ok("GET", "/api/stages/"+id+"?accountId=acc", "", &st)
	return st
}

// ended waits for the end of a stage.
func (s *server) ended(id string) (st api.Stage) {
	s.t.Helper()
	s.ok("GET", "/api/stages/"+id+"?accountId=acc&wait=60", "", &st)
	require.True(s.t, st.Status.Ended(), "%+v", st)
	return st
}

func (s *server) task(id string) (t api.Task) {
	s.t.Helper()
	s.ok("GET", "/api/tasks/"+id+"?accountId=acc", "", &t)
	return t
}

// advanceUntil advances the clock and waits until the manager has executed the due work.
func (s *server) advanceUntil(d time.Duration, until func() bool) {
	s.t.Helper()
	s.clock.Advance(d)
	require.Eventually(s.t, until, 5*time.Second, time.Millisecond)
}

// withHeader returns a client that sends a given Authorization header.
func withHeader(c *http.Client, authorization string) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", authorization)
		return c.Transport.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var custom = task.Task{Type: "custom"}

func wallNow() time.Time { return time.Now() }

func reader(s string) io.Reader { return strings.NewReader(s) }
