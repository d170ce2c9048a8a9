package status_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/connector/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	commit = "1111111111111111111111111111111111111111"
	token  = "visibly-fake-token"
)

// call is a request that a provider got.
type call struct{ path, authorization, body string }

// provider answers with a status and headers, in pairs.
func provider(t *testing.T, code int, answer string, headers ...string) (address string, last func() call) {
	t.Helper()
	got := make(chan call, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- call{r.Method + " " + r.URL.RequestURI(), r.Header.Get("Authorization"), string(body)}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() call { return <-got }
}

func send(t *testing.T, r source.StatusRequest) (source.StatusAnswer, task.Response) {
	t.Helper()
	data, err := json.Marshal(r)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, _ := task.Serve(context.Background(), status.Handler(transport), &task.Task{ID: "1", Type: "git/status", Data: data})
	var a source.StatusAnswer
	_ = json.Unmarshal(resp.Data, &a)
	return a, *resp
}

func request(provider, server string) source.StatusRequest {
	return source.StatusRequest{
		Provider: provider, Server: server, Repository: "acme/web app", Commit: commit, Context: "dlite/web", State: source.StateRunning, Description: "step 1",
		Link: "https://manager.invalid/#/runs/1", Auth: &source.Auth{Password: token}, Expires: time.Now().Add(time.Minute),
	}
}

// The requests follow the documented APIs.
func TestRequestsFollowTheAPIs(t *testing.T) {
	t.Parallel()
	address, last := provider(t, http.StatusCreated, `{}`)
	const link = `"https://manager.invalid/#/runs/1"`
	for name, want := range map[string]call{
		"github":      {"POST /api/v3/repos/acme/web%20app/statuses/" + commit, "Bearer " + token, `{"state":"pending","context":"dlite/web","description":"step 1","target_url":` + link + `}`},
		"gitea":       {"POST /api/v1/repos/acme/web%20app/statuses/" + commit, "token " + token, `{"state":"pending","context":"dlite/web","description":"step 1","target_url":` + link + `}`},
		"gitlab":      {"POST /api/v4/projects/acme%2Fweb%20app/statuses/" + commit, "Bearer " + token, `{"state":"running","name":"dlite/web","description":"step 1","target_url":` + link + `}`},
		"bitbucket":   {"POST /2.0/repositories/acme/web%20app/commit/" + commit + "/statuses/build", "Bearer " + token, `{"state":"INPROGRESS","key":"dlite/web","name":"dlite/web","description":"step 1","url":` + link + `}`},
		"azure-repos": {"POST /acme/web/_apis/git/repositories/app/commits/" + commit + "/statuses?api-version=7.1", "Basic OnZpc2libHktZmFrZS10b2tlbg==", `{"state":"pending","context":{"name":"dlite/web","genre":"dlite"},"description":"step 1","targetUrl":` + link + `}`},
	} {
		r := request(name, address)
		if name == "azure-repos" {
			r.Repository = "acme/web/_git/app"
		}
		a, _ := send(t, r)
		assert.True(t, a.Sent, name)
		got := last()
		assert.Equal(t, want.path, got.path, name)
		assert.Equal(t, want.authorization, got.authorization, name)
		assert.JSONEq(t, want.body, got.body, name)
	}
}

// An answer says if the status is taken, is sent again, and when.
func TestAnswersOfProviders(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(10 * time.Minute).Unix()
	for name, c := range map[string]struct {
		code     int
		text     string
		headers  []string
		want     source.StatusAnswer
		message  string
		provider string
	}{
		"created":        {code: 201, want: source.StatusAnswer{Sent: true}},
		"credentials":    {code: 401, message: "check the secrets"},
		"unknown":        {code: 404, message: "scopes of the token"},
		"limit":          {code: 429, headers: []string{"Retry-After", "7"}, want: source.StatusAnswer{RetryAfterMS: 7000}, message: "limits the rate"},
		"limit by 403":   {code: 403, headers: []string{"Retry-After", "9"}, want: source.StatusAnswer{RetryAfterMS: 9000}, message: "limits the rate"},
		"forbidden":      {code: 403, message: "scopes of the token"},
		"broken":         {code: 502, message: "status 502"},
		"invalid":        {code: 422, text: "no commit", want: source.StatusAnswer{Refused: true}, message: "no commit"},
		"moved":          {code: 301, headers: []string{"Location", "https://other.invalid/"}, want: source.StatusAnswer{Refused: true}, message: "redirects"},
		"repeated":       {code: 400, provider: "gitlab", text: `{"message":"Cannot transition status via :run from :running (Reason(s): ..)"}`, want: source.StatusAnswer{Sent: true}},
		"not repeated":   {code: 400, provider: "gitlab", text: `{"message":"Cannot transition status via :run from :success"}`, want: source.StatusAnswer{Refused: true}, message: "from :success"},
		"limit by reset": {code: 403, headers: []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", itoa(soon)}, message: "limits the rate"},
	} {
		name0 := "github"
		if c.provider != "" {
			name0 = c.provider
		}
		address, _ := provider(t, c.code, c.text, c.headers...)
		a, resp := send(t, request(name0, address))
		assert.Empty(t, resp.Error, name)
		assert.Contains(t, a.Message, c.message, name)
		if a.Message = ""; name == "limit by reset" {
			assert.InDelta(t, 600_000, a.RetryAfterMS, 60_000)
			continue
		}
		assert.Equal(t, c.want, a, name)
	}
	a, _ := send(t, request("github", "http://127.0.0.1:1"))
	assert.False(t, a.Sent || a.Refused)
	assert.Contains(t, a.Message, "127.0.0.1:1")
	assert.NotContains(t, a.Message, token)
}

func itoa(n int64) string {
	data, _ := json.Marshal(n)
	return string(data)
}

// A task that arrives late makes no request: a newer status may have been sent.
func TestALateTaskSendsNothing(t *testing.T) {
	t.Parallel()
	r := request("github", "http://127.0.0.1:1")
	r.Expires = time.Now().Add(-time.Second)
	a, _ := send(t, r)
	assert.Equal(t, source.StatusAnswer{Message: "the task was late: it is sent again"}, a)
}

func TestWrongRequestsFail(t *testing.T) {
	t.Parallel()
	for message, change := range map[string]func(*source.StatusRequest){
		"with https":       func(r *source.StatusRequest) { r.Server = "file:///etc" },
		"id of a commit":   func(r *source.StatusRequest) { r.Commit = "../x" },
		"a known state":    func(r *source.StatusRequest) { r.State = "done" },
		"no token":         func(r *source.StatusRequest) { r.Auth = nil },
		"is not known":     func(r *source.StatusRequest) { r.Provider = "other" },
		"has not the form": func(r *source.StatusRequest) { r.Provider = "azure-repos" },
	} {
		r := request("github", "http://127.0.0.1:1")
		change(&r)
		_, resp := send(t, r)
		assert.Contains(t, resp.Error, message)
	}
}
