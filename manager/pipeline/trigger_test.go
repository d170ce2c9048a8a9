package pipeline_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

func TestARunOfAStoredPipelineKeepsItsVersion(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1))
	url := serve(t, s)
	const set = "inputSet: {identifier: a, name: a, pipeline: {identifier: echo, variables: [{name: title, type: String, value: from the set}]}}"
	body := encode(t, api.Pipeline{YAML: echo, InputSets: map[string]string{"usual": set}})
	status, answer := call(t, "PUT", url+"/api/pipelines/echo", body)
	require.Equal(t, 200, status, answer)
	assert.Contains(t, answer, `"version":1`)
	status, answer = call(t, "POST", url+"/api/runs", `{"id":"one","pipeline":"echo","input_set_names":["usual"],"trigger":{"prTitle":"t","payload":{"pull_request":{"head":{"ref":"r"}}}},"codebase":{"pullRequestBody":"b"}}`)
	require.Equal(t, 202, status, answer)
	status, answer = call(t, "PUT", url+"/api/pipelines/echo", encode(t, api.Pipeline{YAML: hello, Version: 1}))
	require.Equal(t, 200, status, answer)
	assert.Contains(t, answer, `"version":2`)
	r := wait(t, s, "one")
	assert.Equal(t, hexOf("from the set"), node(t, r, ".show").Outputs["TITLE"], tree(r))
	assert.Equal(t, "echo", r.StoredPipeline)
	assert.Equal(t, int64(1), r.StoredVersion)

	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/api/pipelines/echo", encode(t, api.Pipeline{YAML: hello, Version: 1}), 409, "has version 2 and not 1"},
		{"PUT", "/api/pipelines/new", encode(t, api.Pipeline{YAML: hello, Version: 1}), 409, "does not exist"},
		{"PUT", "/api/pipelines/bad", `{"yaml":"pipeline: {identifier: a}"}`, 400, `"problems":[`},
		{"PUT", "/api/pipelines/bad", encode(t, api.Pipeline{YAML: hello, InputSets: map[string]string{"x": "inputSet: ["}}), 400, "input_sets.x"},
		{"PUT", "/api/pipelines/bad", encode(t, api.Pipeline{ID: "other", YAML: hello}), 400, "id differs"},
		{"PUT", "/api/pipelines/a%20b", encode(t, api.Pipeline{YAML: hello}), 400, "id"},
		{"POST", "/api/runs", `{"pipeline":"none"}`, 400, `there is no stored pipeline \"none\"`},
		{"POST", "/api/runs", `{"pipeline":"echo","input_set_names":["none"]}`, 400, `has no input set \"none\"`},
		{"POST", "/api/runs", `{"pipeline":"echo","yaml":"x"}`, 400, "use one of them"},
		{"POST", "/api/runs", `{"yaml":"x","input_set_names":["a"]}`, 400, "for a stored pipeline"},
		{"GET", "/api/pipelines", "", 200, `{"pipelines":[{"id":"echo","version":2`},
		{"GET", "/api/pipelines?page=a%00", "", 400, "page is not"},
		{"GET", "/api/pipelines/a%00", "", 404, "not found"},
		{"DELETE", "/api/pipelines/echo", "", 204, ""},
		{"DELETE", "/api/pipelines/echo", "", 404, "not found"},
		{"GET", "/api/pipelines/echo", "", 404, "not found"},
	} {
		status, answer := call(t, test.method, url+test.path, test.body)
		assert.Equal(t, test.status, status, "%s %s: %s", test.method, test.path, answer)
		assert.Contains(t, answer, test.want)
	}
}

func TestBadTriggersAreRefusedWithTheField(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1), withKeys)
	url := serve(t, s)
	store(t, s, "hello", hello, nil)
	store(t, s, "echo", echo, nil)
	for _, test := range []struct{ body, want string }{
		{`{"kind":"x","pipeline":"hello"}`, "use webhook, cron, git or registry"},
		{`{"kind":"cron","cron":"* * * * *"}`, "pipeline is empty"},
		{`{"kind":"cron","cron":"* * * * *","pipeline":"none"}`, "no stored pipeline"},
		{`{"kind":"cron","cron":"* * *","pipeline":"hello"}`, "cron \\\"* * *\\\""},
		{`{"kind":"cron","cron":"@every 1s","pipeline":"hello"}`, "@every 1m"},
		{`{"kind":"cron","cron":"0 0 31 2 *","pipeline":"hello"}`, "never matches"},
		{`{"kind":"cron","cron":"CRON_TZ=Asia/Tokyo 0 0 * * *","pipeline":"hello"}`, "put it into time_zone"},
		{`{"kind":"cron","cron":"0 0 * * *","time_zone":"Mars","pipeline":"hello"}`, "time_zone"},
		{`{"kind":"cron","cron":"0 0 * * *","pipeline":"hello","secret":"visibly-fake-webhook-secret"}`, "for the kind webhook"},
		{`{"kind":"cron","cron":"0 0 * * *","pipeline":"echo"}`, "has no value"},
		{`{"kind":"cron","cron":"0 0 * * *","pipeline":"echo","inputs":{"title":"<+trigger.branch>"}}`, "no value at a time of cron"},
		{`{"kind":"cron","cron":"0 0 * * *","pipeline":"hello","inputs":{"x":"y"}}`, "has no input"},
		{`{"kind":"webhook","provider":"x","pipeline":"hello"}`, "use github, gitlab"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello"}`, "secret is missing"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello","secret":"short"}`, "secret has 5 bytes"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello","secret":"visibly fake secret"}`, "without blanks"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello","events":[{"type":"x"}]}`, "events[0].type"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello","events":[{"type":"pull_request","actions":["x"]}]}`, "events[0].actions[0]"},
		{`{"kind":"webhook","provider":"github","pipeline":"hello","branches":["!"]}`, "branches[0]"},
		{`{"kind":"webhook","provider":"custom","pipeline":"hello","branches":["a"]}`, "for Git providers"},
	} {
		status, answer := call(t, "PUT", url+"/api/triggers/t", test.body)
		assert.Equal(t, 400, status, "%s: %s", test.body, answer)
		assert.Contains(t, answer, test.want, test.body)
	}
	without := newService(t, newManager(t, 1))
	store(t, without, "hello", hello, nil)
	_, err := without.SetTrigger(t.Context(), account, api.Trigger{ID: "t", Kind: "webhook", Provider: "github", Secret: hookSecret, Pipeline: "hello"})
	require.ErrorContains(t, err, "has no key")
}

func TestTheSecretOfAWebhookIsWrittenOnceAndNeverShown(t *testing.T) {
	t.Parallel()
	m, database := newManager(t, 1), filepath.Join(t.TempDir(), "pipelines.db")
	keys := [][]byte{[]byte("visibly fake key 1"), []byte("visibly fake key 2")}
	at := func(keys ...[]byte) func(*pipeline.Config) {
		return func(c *pipeline.Config) { c.Database, c.Keys = database, keys }
	}
	s := newService(t, m, at(keys[0]))
	url, hooks := serve(t, s), serveHooks(t, s)
	store(t, s, "hello", skipped(), nil)
	set := encode(t, api.Trigger{Kind: "webhook", Provider: "gitlab", Secret: hookSecret, Pipeline: "hello"})
	answers := ""
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/api/triggers/gl", set}, {"GET", "/api/triggers/gl", ""}, {"GET", "/api/triggers", ""},
		{"PUT", "/api/triggers/gl", `{"kind":"webhook","provider":"gitlab","pipeline":"hello","branches":["*"]}`},
	} {
		status, answer := call(t, c.method, url+c.path, c.body)
		require.Equal(t, 200, status, answer)
		assert.Contains(t, answer, `"has_secret":true`)
		answers += answer
	}
	assert.NotContains(t, answers, hookSecret)
	assert.NotContains(t, answers, "sealed")
	for _, file := range []string{database, database + "-wal"} {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(content), hookSecret)
	}
	push := `{"object_kind":"push","ref":"refs/heads/a","after":"` + hookCommit + `"}`
	status, out := post(t, hooks+account+"/gl", push, "X-Gitlab-Token", hookSecret, "X-Gitlab-Event-UUID", "1")
	require.Equal(t, 202, status, out.Message)
	wait(t, s, out.Runs[0])

	// Another key opens nothing. The old key opens it beside a new one.
	for name, test := range map[string]struct {
		keys [][]byte
		want int
	}{"another key": {keys[1:], 401}, "a new key before the old one": {[][]byte{keys[1], keys[0]}, 202}} {
		other := newService(t, m, at(test.keys...))
		status, _ := post(t, serveHooks(t, other)+account+"/gl", push, "X-Gitlab-Token", hookSecret, "X-Gitlab-Event-UUID", name)
		assert.Equal(t, test.want, status, name)
	}
	require.NoError(t, s.DeleteTrigger(t.Context(), account, "gl"))
	status, _ = post(t, hooks+account+"/gl", push, "X-Gitlab-Token", hookSecret, "X-Gitlab-Event-UUID", "4")
	assert.Equal(t, 401, status)
}

// Two services share a database. Each time of a trigger must start one run, and the times of an outage one together.
func TestATimeOfATriggerStartsOneRunInSeveralServices(t *testing.T) {
	t.Parallel()
	m, database := newManager(t, 2), testbed.Postgres(t).URL
	services := []*pipeline.Service{
		newService(t, m, func(c *pipeline.Config) { c.Database = database }), newService(t, m, func(c *pipeline.Config) { c.Database = database }),
	}
	s := services[0]
	store(t, s, "never", skipped(), nil)
	set := setTrigger(t, s, api.Trigger{ID: "yearly", Kind: "cron", Cron: "30 2 1 1 *", TimeZone: "Asia/Tokyo", Pipeline: "never"})
	require.Equal(t, "17:30:00", set.Next.Format(time.TimeOnly), "Tokyo is nine hours ahead of UTC")
	off := setTrigger(t, s, api.Trigger{ID: "off", Kind: "cron", Cron: "30 2 1 1 *", Pipeline: "never", Disabled: true})
	require.True(t, off.Next.IsZero())
	fire := func(at time.Time) int {
		var wg sync.WaitGroup
		for _, one := range services {
			for range 4 {
				wg.Go(func() { assert.NoError(t, one.FireDue(t.Context(), at)) })
			}
		}
		wg.Wait()
		page, err := s.Runs(t.Context(), account, api.RunFilter{Labels: map[string]string{"trigger": "yearly"}})
		require.NoError(t, err)
		return len(page.Runs)
	}
	assert.Equal(t, 0, fire(set.Next.Add(-time.Second)))
	assert.Equal(t, 1, fire(set.Next))
	assert.Equal(t, 1, fire(set.Next))
	assert.Equal(t, 2, fire(set.Next.AddDate(3, 0, 1)), "three missed times start one run")
	shown, err := s.Trigger(t.Context(), account, "yearly")
	require.NoError(t, err)
	assert.Equal(t, set.Next.AddDate(4, 0, 0), shown.Next)
	r := wait(t, s, shown.LastRun)
	assert.Equal(t, "SCHEDULER_CRON", r.Cause)

	// A pipeline that is gone is an error of the trigger, and the next time is tried again.
	require.NoError(t, s.DeletePipeline(t.Context(), account, "never"))
	assert.Equal(t, 2, fire(shown.Next))
	after, err := s.Trigger(t.Context(), account, "yearly")
	require.NoError(t, err)
	assert.Contains(t, after.LastError, "no stored pipeline")
	assert.True(t, after.Next.After(shown.Next))
}
