package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

func step(id, script string) api.StepRequest {
	data, _ := json.Marshal(map[string]any{"run": map[string]any{"entrypoint": []string{"sh", "-ec"}, "commands": []string{script}}})
	return api.StepRequest{ID: id, Data: data}
}

func TestAStageIsSubmittedWatchedAndRead(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startDelegate(t)
	submitted, err := s.SubmitStage(t.Context(), api.StageRequest{
		Pipeline: "web", Labels: map[string]string{"env": "test"}, Steps: []api.StepRequest{step("greet", "echo hello; exit 3")},
	})
	require.NoError(t, err)
	require.NotEmpty(t, submitted.ID, "the client chooses an id")
	var live []string
	for line, err := range s.FollowLog(t.Context(), submitted.ID+"/greet", 0) {
		require.NoError(t, err)
		live = append(live, line.Text)
	}
	ended, err := s.WaitStage(t.Context(), submitted.ID)
	require.NoError(t, err)
	assert.Equal(t, api.Failure, ended.Status)
	assert.Equal(t, api.FailureExitCode, ended.FailureKind)
	assert.Equal(t, 3, ended.Steps[0].ExitCode)
	assert.Equal(t, submitted.ID+"/greet", ended.Steps[0].LogKey)

	var archived []string
	for line, err := range s.Log(t.Context(), ended.Steps[0].LogKey) {
		require.NoError(t, err)
		assert.EqualValues(t, len(archived), line.Pos)
		archived = append(archived, line.Text)
	}
	assert.Contains(t, live, "hello\n")
	assert.Equal(t, live, archived)

	var found []string
	for st, err := range s.Stages(t.Context(), api.StageFilter{Status: "FAILURE", Pipeline: "web", Labels: map[string]string{"env": "test"}}) {
		require.NoError(t, err)
		found = append(found, st.ID)
	}
	assert.Equal(t, []string{submitted.ID}, found)
	state, err := s.Step(t.Context(), ended.ID, "greet")
	require.NoError(t, err)
	assert.Equal(t, ended.Steps[0], state)
}

func TestAStageIsHeldOpen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startDelegate(t)
	held, err := s.SubmitStage(t.Context(), api.StageRequest{Hold: &api.Hold{LeaseMS: 60_000}})
	require.NoError(t, err)
	assert.True(t, held.Open)
	_, err = s.AppendSteps(t.Context(), held.ID, step("one", "true"), step("two", "sleep 100"))
	require.NoError(t, err)
	_, err = s.AppendSteps(t.Context(), held.ID, step("one", "false"))
	assert.True(t, api.IsStatus(err, http.StatusConflict), "%v", err)
	_, err = s.AbortStep(t.Context(), held.ID, "two")
	require.NoError(t, err)
	_, err = s.RenewStage(t.Context(), held.ID)
	require.NoError(t, err)
	_, err = s.FinishStage(t.Context(), held.ID)
	require.NoError(t, err)
	ended, err := s.WaitStage(t.Context(), held.ID)
	require.NoError(t, err)
	assert.Equal(t, []api.Status{api.Success, api.Aborted}, []api.Status{ended.Steps[0].Status, ended.Steps[1].Status})
	_, err = s.AppendSteps(t.Context(), held.ID, step("three", "true"))
	assert.True(t, api.IsStatus(err, http.StatusConflict), "%v", err)
}

func TestASubmissionWithoutAnAnswerIsRepeatedAndActsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.front.lose.Store(&loss{"POST", "/api/stages", 2})
	got, err := s.SubmitStage(t.Context(), api.StageRequest{Steps: []api.StepRequest{step("a", "true")}})
	require.NoError(t, err)
	var all []string
	for st, err := range s.Stages(t.Context(), api.StageFilter{}) {
		require.NoError(t, err)
		all = append(all, st.ID)
	}
	assert.Equal(t, []string{got.ID}, all)
	assert.EqualValues(t, 3, s.front.calls.Load())
}

func TestACallThatCouldActTwiceIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	request, err := json.Marshal(api.StageRequest{Steps: []api.StepRequest{step("a", "true")}})
	require.NoError(t, err)
	_, err = s.SetSchedule(t.Context(), api.Schedule{ID: "nightly", Cron: "@yearly", Stage: request})
	require.NoError(t, err)
	s.front.lose.Store(&loss{"POST", "/api/schedules", 1})
	_, err = s.TriggerSchedule(t.Context(), "nightly")
	require.ErrorContains(t, err, "cannot reach the manager")
	assert.EqualValues(t, 1, s.front.calls.Load())

	s.front.lose.Store(&loss{"DELETE", "/api/schedules", 2})
	require.NoError(t, s.DeleteSchedule(t.Context(), "nightly"), "the lost attempt has deleted it")
	err = s.DeleteSchedule(t.Context(), "nightly")
	assert.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)
}

func TestErrorsHaveTheStatusTheMessageAndTheProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, err := s.Stage(t.Context(), "a/b ?")
	require.True(t, api.IsStatus(err, http.StatusNotFound), "%v", err)
	assert.ErrorContains(t, err, `"a/b ?"`)
	_, err = s.SubmitStage(t.Context(), api.StageRequest{Priority: "LOW", Steps: []api.StepRequest{step("a", "true")}})
	require.True(t, api.IsStatus(err, http.StatusBadRequest), "%v", err)
	assert.ErrorContains(t, err, "priority")
	_, err = s.StartRun(t.Context(), api.RunRequest{YAML: "pipeline:\n  identifier: a\n  stages: 3\n"})
	var refused *api.Error
	require.ErrorAs(t, err, &refused)
	require.NotEmpty(t, refused.Problems)
	assert.Equal(t, "error", refused.Problems[0].Severity)

	wrong := s.client(t, func(c *api.Config) { c.Token = "not-a-token" })
	_, err = wrong.Delegates(t.Context())
	assert.True(t, api.IsStatus(err, http.StatusUnauthorized), "%v", err)
	for _, err := range wrong.Events(t.Context(), api.EventFilter{}) {
		assert.True(t, api.IsStatus(err, http.StatusUnauthorized), "%v", err)
	}
}

func TestTheClientWaitsAsLongAsTheManagerAsks(t *testing.T) {
	t.Parallel()
	var first time.Time
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if first.IsZero() {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = fmt.Fprint(w, `{"error_msg":"the budget is used up"}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"id":"run"}`)
	}))
	defer busy.Close()
	cfg := api.Config{URL: busy.URL, Account: account, Token: "fake", HTTP: busy.Client()}
	c, err := api.New(cfg)
	require.NoError(t, err)
	got, err := c.RunAgain(t.Context(), "run", api.Order{}) // 429 means that the manager did nothing
	require.NoError(t, err)
	assert.Equal(t, "run", got.ID)
	assert.GreaterOrEqual(t, time.Since(first), time.Second)

	first = time.Time{}
	cfg.RetryFor = -1
	c, err = api.New(cfg)
	require.NoError(t, err)
	_, err = c.Run(t.Context(), "run")
	var refused *api.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, time.Second, refused.RetryAfter)
}

func TestAnAnswerOfAnotherServerIsNamedSo(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.NotFoundHandler())
	defer proxy.Close()
	c, err := api.New(api.Config{URL: proxy.URL + "/base/", Account: account, Token: "fake", HTTP: proxy.Client()})
	require.NoError(t, err)
	_, err = c.Run(t.Context(), "a")
	assert.ErrorContains(t, err, "/base/api/runs/a?accountId=acme answered 404 Not Found, which is no answer of a manager: check the address")
}

// The token must not go to the address that a redirect names.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server got the headers %v", r.Header)
	}))
	defer other.Close()
	moved := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	for _, sender := range []*http.Client{nil, {Transport: &http.Transport{DisableKeepAlives: true}}} {
		c, err := api.New(api.Config{URL: moved.URL, Account: account, Token: "fake", HTTP: sender})
		require.NoError(t, err)
		_, err = c.Run(t.Context(), "a")
		assert.True(t, api.IsStatus(err, http.StatusTemporaryRedirect), "%v", err)
		for _, err := range c.Log(t.Context(), "a/step") {
			assert.True(t, api.IsStatus(err, http.StatusTemporaryRedirect), "%v", err)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestAClientChecksItsSettings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want string
		cfg  api.Config
	}{
		{"URL", api.Config{URL: "manager.example.com", Account: "a", Token: "fake"}},
		{"URL", api.Config{URLs: []string{"http://h", "http://h/?a=b"}, Account: "a", Token: "fake"}},
		{"URL", api.Config{URL: "http://h/#a", Account: "a", Token: "fake"}},
		{"LogURL", api.Config{URL: "http://h", LogURL: "ftp://h", Account: "a", Token: "fake"}},
		{"Account", api.Config{URL: "http://h", Token: "fake"}},
		{"Token", api.Config{URL: "http://h", Account: "a"}},
	} {
		_, err := api.New(tc.cfg)
		assert.ErrorContains(t, err, tc.want)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held, err := s.SubmitStage(t.Context(), api.StageRequest{Steps: []api.StepRequest{step("a", "true")}}) // no delegate
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err = s.WaitStage(ctx, held.ID)
	require.ErrorIs(t, err, context.Canceled)
}
