package pipeline_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

const (
	hookSecret = "visibly-fake-webhook-secret"
	hookCommit = "1111111111111111111111111111111111111111"
)

// withKeys lets a service keep the secrets of webhooks.
func withKeys(c *pipeline.Config) { c.Keys = [][]byte{[]byte("visibly fake key 1")} }

// serveHooks serves the webhooks of a service.
func serveHooks(tb testing.TB, s *pipeline.Service) string {
	tb.Helper()
	server := httptest.NewServer(s.Hooks())
	tb.Cleanup(server.Close)
	return server.URL + "/api/hooks/"
}

// hookAnswer is the answer to a call of a webhook.
type hookAnswer struct {
	Runs, Repeated []string
	Ignored        string
	Message        string `json:"error_msg"`
}

// post calls a webhook with headers, as pairs of names and values.
func post(tb testing.TB, url, body string, headers ...string) (int, hookAnswer) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), "POST", url, strings.NewReader(body))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, resp.Body.Close()) }()
	var out hookAnswer
	require.NoError(tb, json.NewDecoder(resp.Body).Decode(&out))
	return resp.StatusCode, out
}

func signed(body string) string {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// postGitHub makes a signed delivery.
func postGitHub(tb testing.TB, url, event, id, body string) (int, hookAnswer) {
	tb.Helper()
	return post(tb, url, body, "X-GitHub-Event", event, "X-GitHub-Delivery", id, "X-Hub-Signature-256", "sha256="+signed(body))
}

// echo writes values of a delivery to its outputs. The input title has no value in the pipeline.
var echo = oneStage("echo", `
              - step:
                  identifier: show
                  name: show
                  type: Run
                  spec:
                    command: |
                      encode() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n'; }
                      export TITLE=$(encode "$T") AGAIN=$(encode "$A") MESSAGE=$(encode "$M") BRANCH=$(encode "$B")
                    outputVariables: [{name: TITLE}, {name: AGAIN}, {name: MESSAGE}, {name: BRANCH}]
                    envVariables:
                      T: <+pipeline.variables.title>
                      A: <+trigger.prTitle>
                      M: <+codebase.pullRequestBody>
                      B: <+trigger.payload.pull_request.head.ref>
  variables: [{name: title, type: String, value: <+input>}]
`)

func store(tb testing.TB, s *pipeline.Service, id, yaml string, sets map[string]string) {
	tb.Helper()
	_, err := s.SetPipeline(tb.Context(), account, api.Pipeline{ID: id, YAML: yaml, InputSets: sets})
	require.NoError(tb, err)
}

func setTrigger(tb testing.TB, s *pipeline.Service, t api.Trigger) api.Trigger {
	tb.Helper()
	out, err := s.SetTrigger(tb.Context(), account, t)
	require.NoError(tb, err)
	return out
}

func pullRequest(tb testing.TB, title, body, branch string) string {
	tb.Helper()
	repo := map[string]any{"full_name": "acme/web"}
	return encode(tb, map[string]any{"action": "opened", "sender": map[string]any{"login": "ann"}, "pull_request": map[string]any{
		"number": 7, "title": title, "body": body,
		"head": map[string]any{"ref": branch, "sha": hookCommit, "repo": repo}, "base": map[string]any{"ref": "main", "repo": repo},
	}})
}

func hexOf(text string) string { return hex.EncodeToString([]byte(text)) }

// skipped is a pipeline whose runs end without a stage.
func skipped() string {
	return strings.Replace(hello, "type: CI\n", "type: CI\n        when: {pipelineStatus: Success, condition: \"false\"}\n", 1)
}

// attacks are texts that would have an effect if they were evaluated.
func attacks() []string {
	bases := []string{
		`<+secrets.getValue("prod")>`, `${{secrets.prod}}`, `<{prod}>`, `<{ prod | getAsBase64 }>`, `<+pipeline.name>`, `<+<+pipeline.name>>`, `<+"a".concat("b")>`, `$<+trigger.prTitle>`,
		`"; touch pwned; "`, `'; touch pwned; '`, `$(touch pwned)`, "`touch pwned`", "a\ntouch pwned", `${T}`, `a\`, `"`, `'`, `{a: b}`, `[a, b]`, `- a`, `a: b # c`,
		`<+input>`, `<+input>.default(a)`, `${{ secrets.prod }}`, `<+secrets.getValue("account.prod")>`, `%s%n`, `<+trigger.payload>`, `${{secrets.}}secrets.prod}}`,
	}
	var all []string
	for _, b := range bases {
		all = append(all, b, "Fix "+b, b+b, b+" <+pipeline.name> ${{secrets.prod}}")
	}
	return all
}

// A run shows three texts of a delivery, one of them in two ways. Each must arrive as it was sent.
func TestValuesOfADeliveryAreNeverEvaluated(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 4), withKeys)
	store(t, s, "echo", echo, nil)
	all := attacks()
	require.GreaterOrEqual(t, len(all), 100)
	hooks := serveHooks(t, s)
	type try struct{ title, body, branch, run string }
	var tries []try
	for i := 0; i < len(all); i += 3 {
		one := try{title: all[i], body: all[(i+1)%len(all)], branch: all[(i+2)%len(all)]}
		id := fmt.Sprintf("t%d", i/50) // a webhook may start 60 runs in a minute
		setTrigger(t, s, api.Trigger{
			ID: id, Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "echo", Inputs: map[string]string{"title": "<+trigger.prTitle>"},
		})
		status, out := postGitHub(t, hooks+account+"/"+id, "pull_request", fmt.Sprint(i), pullRequest(t, one.title, one.body, one.branch))
		require.Equal(t, 202, status, "%q: %s", one.title, out.Message)
		one.run = out.Runs[0]
		tries = append(tries, one)
	}
	for _, one := range tries {
		r := wait(t, s, one.run)
		assert.Equal(t, "SUCCEEDED", r.Status, "%q: %s", one.title, tree(r))
		assert.Equal(t, map[string]string{
			"TITLE": hexOf(one.title), "AGAIN": hexOf(one.title), "MESSAGE": hexOf(one.body), "BRANCH": hexOf(one.branch),
		}, node(t, r, ".show").Outputs, "%q %q %q", one.title, one.body, one.branch)
	}
}

func wait(tb testing.TB, s *pipeline.Service, id string) api.Run {
	tb.Helper()
	ended := make(chan api.Run, 1)
	go func() {
		r, err := s.Wait(tb.Context(), account, id)
		if err == nil {
			ended <- r
		}
	}()
	select {
	case r := <-ended:
		return r
	case <-time.After(2 * time.Minute):
		r, _ := s.Run(tb.Context(), account, id)
		tb.Fatalf("run %s has not ended:\n%s", id, tree(r))
		return r
	}
}

func TestACallWithoutAValidProofLearnsNothing(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	store(t, s, "hello", hello, nil)
	hook := api.Trigger{ID: "gh", Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "hello"}
	setTrigger(t, s, hook)
	off := hook
	off.ID, off.Disabled = "off", true
	setTrigger(t, s, off)
	setTrigger(t, s, api.Trigger{ID: "nightly", Kind: "cron", Cron: "0 0 1 1 *", Pipeline: "hello"})
	hooks, body := serveHooks(t, s), pullRequest(t, "a", "b", "c")
	wrong := []string{"X-GitHub-Event", "pull_request", "X-Hub-Signature-256", "sha256=" + signed(body+" ")}
	for name, test := range map[string]struct {
		path    string
		headers []string
	}{
		"a wrong signature":           {account + "/gh", wrong},
		"no signature":                {account + "/gh", nil},
		"the token of a user":         {account + "/gh", []string{"Authorization", "Bearer visibly-fake"}},
		"a signature of no form":      {account + "/gh", []string{"X-Hub-Signature-256", "md5=1"}},
		"the proof of another kind":   {account + "/gh", []string{"X-Trigger-Token", hookSecret}},
		"a disabled trigger":          {account + "/off", wrong},
		"a cron trigger":              {account + "/nightly", wrong},
		"a missing trigger":           {account + "/none", wrong},
		"a missing account":           {"none/gh", wrong},
		"an account with a zero byte": {"a%00/gh", wrong},
		"a trigger with a zero byte":  {account + "/a%00", wrong},
		"a longer path":               {account + "/gh/x", wrong},
	} {
		status, out := post(t, hooks+test.path, body, test.headers...)
		assert.Equal(t, 401, status, name)
		assert.Equal(t, hookAnswer{Message: "the call is not signed for this webhook"}, out, name)
	}
	page, err := s.Runs(t.Context(), account, api.RunFilter{})
	require.NoError(t, err)
	assert.Empty(t, page.Runs)

	status, out := postGitHub(t, hooks+account+"/off", "pull_request", "1", body)
	assert.Equal(t, 200, status)
	assert.Equal(t, "the trigger is disabled", out.Ignored)
	status, _ = post(t, hooks+account+"/gh", strings.Repeat("x", 3<<20), wrong...)
	assert.Equal(t, 413, status)
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	status, out = postGitHub(t, hooks+account+"/gh", "push", "2", deep)
	assert.Equal(t, 422, status)
	assert.Contains(t, out.Message, "nested more than 100 levels")
	status, out = postGitHub(t, hooks+account+"/gh", "push", "3", "payload=%7B%7D")
	assert.Equal(t, 422, status)
	assert.Contains(t, out.Message, "not a JSON object")
}

func TestARepeatedDeliveryStartsNothing(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	store(t, s, "hello", skipped(), nil)
	url := serveHooks(t, s) + account + "/gh"
	setTrigger(t, s, api.Trigger{ID: "gh", Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "hello", Labels: map[string]string{"team": "red"}})
	body := pullRequest(t, "a", "b", "c")
	status, first := postGitHub(t, url, "pull_request", "1", body)
	require.Equal(t, 202, status, first.Message)
	// The id of a delivery is not signed: a replay may have another one.
	for _, id := range []string{"1", "2", ""} {
		status, again := postGitHub(t, url, "pull_request", id, body)
		assert.Equal(t, 200, status)
		assert.Equal(t, hookAnswer{Repeated: first.Runs}, again)
	}
	// The same id with another body is a repetition too.
	status, again := postGitHub(t, url, "pull_request", "1", pullRequest(t, "other", "b", "c"))
	assert.Equal(t, 200, status)
	assert.Equal(t, first.Runs, again.Repeated)
	page, err := s.Runs(t.Context(), account, api.RunFilter{Labels: map[string]string{"trigger": "gh", "team": "red"}})
	require.NoError(t, err)
	require.Len(t, page.Runs, 1)
	assert.Equal(t, "WEBHOOK", page.Runs[0].Cause)
	assert.Equal(t, "main", page.Runs[0].Branch)
	assert.Equal(t, "ann", page.Runs[0].User)
	assert.Equal(t, "hello", page.Runs[0].StoredPipeline)
	shown, err := s.Trigger(t.Context(), account, "gh")
	require.NoError(t, err)
	assert.Equal(t, first.Runs[0], shown.LastRun)
}

func TestAWebhookStartsABoundedNumberOfRunsInAMinute(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	store(t, s, "never", skipped(), nil)
	url := serveHooks(t, s) + account + "/any"
	setTrigger(t, s, api.Trigger{ID: "any", Kind: "webhook", Provider: "custom", Secret: hookSecret, Pipeline: "never"})
	started, refused := 0, 0
	begin := time.Now()
	for range 61 {
		status, _ := post(t, url, `{}`, "X-Trigger-Token", hookSecret)
		switch status {
		case 202:
			started++
		case 429:
			refused++
		}
	}
	if time.Since(begin) < time.Minute {
		assert.Equal(t, []int{60, 1}, []int{started, refused})
	}
}

func TestEventsOutsideOfTheConditionsStartNothing(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	store(t, s, "hello", skipped(), nil)
	hooks := serveHooks(t, s)
	pr, fork := pullRequest(t, "a", "b", "c"), strings.Replace(pullRequest(t, "x", "b", "c"), "acme/web", "eve/web", 1)
	push := `{"ref":"refs/heads/wip","after":"` + hookCommit + `"}`
	for i, test := range []struct {
		change      func(*api.Trigger)
		event, body string
		want        string
	}{
		{func(*api.Trigger) {}, "push", push, ""},
		{func(tr *api.Trigger) { tr.Branches = []string{"main"} }, "push", push, "the branch does not match branches"},
		{func(tr *api.Trigger) { tr.Branches = []string{"main"} }, "pull_request", pr, ""},
		{func(tr *api.Trigger) { tr.Tags = []string{"v*"} }, "push", `{"ref":"refs/tags/x","after":"` + hookCommit + `"}`, "the tag does not match tags"},
		{func(tr *api.Trigger) { tr.Events = []api.TriggerEvent{{Type: "push"}} }, "pull_request", pr, "the trigger does not start for this event"},
		{func(tr *api.Trigger) {
			tr.Events = []api.TriggerEvent{{Type: "pull_request", Actions: []string{"merged"}}}
		}, "pull_request", pr, "the trigger does not start for this event"},
		{func(*api.Trigger) {}, "pull_request", strings.Replace(pr, "opened", "closed", 1), "the trigger does not start for this event"},
		{func(*api.Trigger) {}, "pull_request", fork, "the change may come from another repository, and forks is not set"},
		{func(tr *api.Trigger) { tr.Forks = true }, "pull_request", fork, ""},
		{func(*api.Trigger) {}, "ping", `{}`, "the delivery has no event that starts runs"},
	} {
		tr := api.Trigger{ID: fmt.Sprintf("t%d", i), Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "hello"}
		test.change(&tr)
		setTrigger(t, s, tr)
		_, out := postGitHub(t, hooks+account+"/"+tr.ID, test.event, "1", test.body)
		assert.Equal(t, test.want, out.Ignored, "%d: %+v", i, out)
		assert.Equal(t, test.want == "", len(out.Runs) == 1, "%d", i)
	}
}

func TestValuesOfADeliveryMustFitTheInputsOfThePipeline(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	store(t, s, "echo", strings.Replace(echo, "<+input>", `"<+input>.allowedValues(good,better)"`, 1), nil)
	setTrigger(t, s, api.Trigger{
		ID: "gh", Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "echo", Inputs: map[string]string{"title": "<+trigger.prTitle>"},
	})
	url := serveHooks(t, s) + account + "/gh"
	status, out := postGitHub(t, url, "pull_request", "1", pullRequest(t, `<+"good">`, "b", "c"))
	assert.Equal(t, 422, status)
	assert.Contains(t, out.Message, "is not permitted")
	shown, err := s.Trigger(t.Context(), account, "gh")
	require.NoError(t, err)
	assert.Contains(t, shown.LastError, "is not permitted")
	status, out = postGitHub(t, url, "pull_request", "2", pullRequest(t, "better", "b", "c"))
	require.Equal(t, 202, status, out.Message)
	assert.Equal(t, hexOf("better"), node(t, wait(t, s, out.Runs[0]), ".show").Outputs["TITLE"])
}
