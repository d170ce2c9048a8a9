package endtoend_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// described makes calls of the bundled programs and compares requests and answers with the description.
type described struct {
	*testing.T
	*programs

	seen  map[string]bool     // "GET /api/stages 200"
	calls map[string][]string // the described statuses
	all   []testbed.Exchange
}

func newDescribed(t *testing.T) *described {
	t.Helper()
	d := &described{T: t, seen: map[string]bool{}, calls: map[string][]string{}}
	var paths struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}
	require.NoError(t, json.Unmarshal(api.OpenAPI(), &paths))
	for path, methods := range paths.Paths {
		for method, o := range methods {
			for status := range o.Responses {
				call := strings.ToUpper(method) + " " + path
				d.calls[call] = append(d.calls[call], status)
			}
		}
	}
	return d
}

// call returns the described call of a request.
func (d *described) callOf(method, path string) string {
	var found string
	for call := range d.calls {
		m, template, _ := strings.Cut(call, " ")
		pattern := "^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`) + "$"
		if m == method && regexp.MustCompile(pattern).MatchString(path) && (found == "" || strings.Count(call, "{") < strings.Count(found, "{")) {
			found = call
		}
	}
	return found
}

// do makes a call, whose answer must be valid. A request whose status is not 400 must be valid too.
func (d *described) do(want int, method, path, body string, headers ...string) []byte {
	d.Helper()
	account := "accountId"
	if !strings.HasPrefix(path, "/api/") {
		account = "accountID"
	}
	address := d.url + path
	if !strings.Contains(path, "ccountI") && !strings.HasPrefix(path, "/api/hooks/") && !strings.HasPrefix(path, "/blob/upload/") && path != "/api/openapi.json" {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		address += separator + account + "=" + d.account
	}
	request := func() *http.Request {
		r, err := http.NewRequestWithContext(d.Context(), method, address, strings.NewReader(body))
		require.NoError(d, err)
		if body == "" {
			r.Body, r.ContentLength = http.NoBody, 0
		} else {
			r.Header.Set("Content-Type", "application/json")
		}
		r.Header.Set("Authorization", "Bearer "+d.token)
		r.Header.Set("X-Harness-Token", d.token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}).Do(request())
	require.NoError(d, err)
	defer func() { _ = answer.Body.Close() }()
	stream := strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
	var text []byte
	if stream { // it may have no end: its beginning must do
		text = make([]byte, 1)
		_, err = io.ReadFull(answer.Body, text)
	} else {
		text, err = io.ReadAll(answer.Body)
	}
	require.NoError(d, err)
	where := fmt.Sprintf("%s %s: %d %.300s", method, path, answer.StatusCode, text)
	assert.Equal(d, want, answer.StatusCode, where)
	plain, _, _ := strings.Cut(path, "?")
	call := d.callOf(method, plain)
	require.NotEmpty(d, call, where)
	d.seen[call+" "+strconv.Itoa(answer.StatusCode)] = true
	if !assert.Contains(d, d.calls[call], strconv.Itoa(answer.StatusCode), where) || stream || len(body) > 1<<20 {
		return text
	}
	r := request()
	d.all = append(d.all, testbed.Exchange{
		Method: method, URL: r.URL.String(), Header: r.Header, Body: body, Status: answer.StatusCode, AnswerHeader: answer.Header, Answer: string(text),
		Valid: want < http.StatusBadRequest || want == http.StatusNotFound || want == http.StatusConflict,
	})
	return text
}

const describedPipeline = `pipeline:
  identifier: hello
  name: Hello
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          platform: {os: Linux, arch: Amd64}
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: greet, name: greet, type: Run, spec: {command: COMMAND}}
`

// An outside validator accepts the description, and what the bundled programs receive and answer.
func TestTheDescriptionIsThatOfRealAnswers(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	d.programs = startPrograms(t, "DRIVERS=local")
	run := func(id, command string) string {
		b, err := json.Marshal(map[string]any{"id": id, "yaml": strings.Replace(describedPipeline, "COMMAND", command, 1)})
		require.NoError(t, err)
		return string(b)
	}
	steps := `"steps":[{"id":"a","data":{"run":{"entrypoint":["sh","-ec"],"commands":["echo built"]}}}]`
	d.do(200, "GET", "/api/openapi.json", "")
	d.do(202, "POST", "/api/stages", `{"id":"one","pipeline":"web","labels":{"a":"b"},`+steps+`}`)
	d.do(200, "POST", "/api/stages", `{"id":"one","pipeline":"web","labels":{"a":"b"},`+steps+`}`)
	d.do(409, "POST", "/api/stages", `{"id":"one","pipeline":"other",`+steps+`}`)
	d.do(400, "POST", "/api/stages", `{"stepss":[]}`)
	d.do(401, "GET", "/api/stages", "", "Authorization", "Bearer not-a-token")
	d.do(200, "GET", "/api/stages/one?wait=60", "")
	d.do(200, "GET", "/api/stages?label=a=b&limit=10", "")
	d.do(400, "GET", "/api/stages?limit=x", "")
	d.do(404, "GET", "/api/stages/none", "")
	d.do(200, "GET", "/api/stages/one/steps/a", "")
	d.do(404, "GET", "/api/stages/one/steps/none", "")
	d.do(200, "POST", "/api/stages/one/abort", "")
	d.do(200, "GET", "/api/ended-stages", "")
	d.do(202, "POST", "/api/stages", `{"id":"held","hold":{"lease_ms":60000}}`)
	d.do(202, "POST", "/api/stages/held/steps", `{`+steps+`}`)
	d.do(200, "POST", "/api/stages/held/steps", `{`+steps+`}`)
	d.do(409, "POST", "/api/stages/one/steps", `{`+steps+`}`)
	d.do(200, "POST", "/api/stages/held/renew", "")
	d.do(409, "POST", "/api/stages/one/renew", "")
	d.do(200, "POST", "/api/stages/held/finish", "")
	d.do(409, "POST", "/api/stages/one/finish", "")
	d.do(200, "POST", "/api/stages/one/steps/a/abort", "")
	d.do(202, "POST", "/api/tasks", `{"id":"t","type":"none","data":{}}`)
	d.do(200, "POST", "/api/tasks", `{"id":"t","type":"none","data":{}}`)
	d.do(409, "POST", "/api/tasks", `{"id":"one","type":"none","data":{}}`)
	d.do(200, "GET", "/api/tasks/t", "")
	d.do(200, "POST", "/api/tasks/t/abort", "")
	d.do(200, "GET", "/api/events?since=0", "")
	var delegates struct{ Delegates []struct{ ID string } }
	require.NoError(t, json.Unmarshal(d.do(200, "GET", "/api/delegates", ""), &delegates))
	d.do(204, "POST", "/api/delegates/"+delegates.Delegates[0].ID+"/drain", "")
	d.do(204, "POST", "/api/delegates/"+delegates.Delegates[0].ID+"/resume", "")
	d.do(404, "POST", "/api/delegates/none/resume", "")
	d.do(200, "GET", "/api/queue", "")
	d.do(200, "POST", "/api/abort", `{"stages":["one","none"]}`)
	d.do(204, "POST", "/api/pause", `{"note":"new disks"}`)
	d.do(204, "POST", "/api/resume", "")
	d.do(204, "PUT", "/api/limits", `{"group":"pipeline:web","max":5}`)
	d.do(200, "GET", "/api/limits", "")
	d.do(200, "PUT", "/api/schedules/s", `{"cron":"30 3 * * *","stage":{`+steps+`}}`)
	d.do(202, "POST", "/api/schedules/s/trigger", "")
	d.do(200, "GET", "/api/schedules/s", "")
	d.do(200, "GET", "/api/schedules", "")
	d.do(204, "DELETE", "/api/schedules/s", "")
	d.do(404, "DELETE", "/api/schedules/s", "")

	d.do(200, "GET", "/api/demand?infra=local&tags=linux", "")
	d.do(200, "PUT", "/api/connectors/own", `{"kind":"http","address":"`+d.url+`/api/openapi.json"}`)
	d.do(200, "GET", "/api/connectors", "")
	d.do(200, "GET", "/api/connectors/own", "")
	d.do(200, "POST", "/api/connectors/own/test", "")
	d.do(404, "POST", "/api/connectors/none/test", "")
	d.do(204, "DELETE", "/api/connectors/own", "")
	d.do(200, "PUT", "/api/perpetual/p", `{"type":"none","interval_ms":60000}`)
	d.do(200, "GET", "/api/perpetual?limit=1", "")
	d.do(200, "GET", "/api/perpetual/p", "")
	d.do(200, "POST", "/api/perpetual/p/pause", `{"note":"new disks"}`)
	d.do(409, "POST", "/api/perpetual/p/run", "")
	d.do(200, "POST", "/api/perpetual/p/resume", "")
	d.do(200, "POST", "/api/perpetual/p/run", "")
	d.do(204, "DELETE", "/api/perpetual/p", "")
	d.do(200, "PUT", "/api/daemon-sets/d", `{"type":"watcher","selectors":["nowhere"],"config":{"image":"watcher"}}`)
	d.do(200, "GET", "/api/daemon-sets", "")
	d.do(200, "GET", "/api/daemon-sets/d", "")
	d.do(200, "PUT", "/api/daemon-sets/d/tasks/t", `{"data":{"path":"a"}}`)
	d.do(409, "PUT", "/api/daemon-sets/d/tasks/t", `{"data":{"path":"b"}}`)
	d.do(204, "DELETE", "/api/daemon-sets/d/tasks/t", "")
	d.do(204, "DELETE", "/api/daemon-sets/d", "")
	d.do(200, "PUT", "/api/upgrade", `{"version":"v9.9.9"}`)
	d.do(200, "GET", "/api/upgrade", "")
	d.do(204, "DELETE", "/api/upgrade", "")

	d.do(202, "POST", "/api/runs", run("r1", "echo hello"))
	d.do(202, "POST", "/api/runs", run("r2", "sleep 300"))
	d.do(409, "POST", "/api/runs/r2/retry", `{}`)
	d.do(409, "POST", "/api/runs/r2/answer", `{"node":"pipeline.stages.build","answer":{"approve":true}}`)
	d.do(200, "POST", "/api/runs/r2/abort", `{"reason":"enough"}`)
	c, err := api.New(api.Config{URL: d.url, Account: d.account, Token: d.token})
	require.NoError(t, err)
	for _, id := range []string{"r1", "r2"} {
		ended, err := c.WaitRun(t.Context(), id)
		require.NoError(t, err)
		t.Log(id, ended.Status, ended.Reason)
	}
	d.do(200, "POST", "/api/runs/r2/abort", `{}`) // again
	d.do(200, "GET", "/api/runs/r1", "")
	d.do(200, "GET", "/api/runs?limit=1", "")
	d.do(200, "GET", "/api/runs/r1/definition", "")
	d.do(200, "GET", "/api/runs/r1/resolved", "")
	d.do(200, "GET", "/api/runs/r1/inputs", "")
	d.do(200, "GET", "/api/runs/r1/diff?with=r2", "")
	d.do(200, "GET", "/api/runs/r1/events", "")
	d.do(200, "GET", "/api/runs/r1/logs", "")
	d.do(200, "GET", "/api/run-events", "")
	d.do(409, "POST", "/api/runs/r1/retry", `{}`)
	d.do(200, "POST", "/api/runs/r1/retry", `{"node":"pipeline.stages.build"}`)
	d.do(202, "POST", "/api/runs/r1/again", `{}`)
	d.do(200, "POST", "/api/lint", run("", "echo hello"))
	d.do(400, "POST", "/api/runs", `{"yaml":"pipeline: {stages: 1}"}`)
	d.do(200, "GET", "/api/history/stages", "")
	d.do(200, "GET", "/api/history/outcomes", "")
	yaml, err := json.Marshal(map[string]any{"yaml": strings.Replace(describedPipeline, "COMMAND", "echo", 1)})
	require.NoError(t, err)
	d.do(200, "PUT", "/api/pipelines/hello", string(yaml))
	d.do(409, "PUT", "/api/pipelines/hello", strings.Replace(string(yaml), "{", `{"version":7,`, 1))
	d.do(200, "GET", "/api/pipelines/hello", "")
	d.do(200, "GET", "/api/pipelines", "")
	d.do(200, "PUT", "/api/triggers/cron", `{"kind":"cron","cron":"30 3 * * *","pipeline":"hello"}`)
	d.do(409, "PUT", "/api/triggers/cron", `{"kind":"cron","cron":"30 3 * * *","pipeline":"hello","version":7}`)
	d.do(200, "GET", "/api/triggers/cron", "")
	d.do(200, "GET", "/api/triggers", "")
	d.do(204, "DELETE", "/api/triggers/cron", "")
	d.do(204, "DELETE", "/api/pipelines/hello", "")
	d.do(200, "GET", "/api/letters", "")
	d.do(404, "POST", "/api/letters/1/deliver", "")
	d.do(404, "DELETE", "/api/letters/1", "")
	d.do(404, "GET", "/api/history/stages/none", "")
	d.do(401, "POST", "/api/hooks/demo/none", `{}`)

	// Every call that takes a body refuses one that is too large. The rest after the bound is small: a server that
	// answers before it has read much more ends the connection, and the answer is lost.
	for call := range d.calls {
		method, template, _ := strings.Cut(call, " ")
		if path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(template, "one"); strings.HasPrefix(path, "/api/") && slices.Contains(d.calls[call], "413") && !strings.HasPrefix(path, "/api/hooks/") {
			most := 32 << 20 // bytes
			if ofPipelines.MatchString(path) {
				most = 16 << 20
			}
			d.do(413, method, path, `{"x":"`+strings.Repeat("x", most)+`"}`)
		}
	}
	testbed.CheckOpenAPI(t, "../../manager/api/openapi.json", d.all)
	for call, statuses := range d.calls {
		if !strings.Contains(call, " /api/") {
			continue // docs/protocol.md has the calls of the log service, and its own tests
		}
		assert.True(t, slices.ContainsFunc(statuses, func(s string) bool { return d.seen[call+" "+s] }), "%s was not called", call)
		if slices.Contains(statuses, "409") && !slices.Contains(unreadable, call) {
			assert.True(t, d.seen[call+" 409"], "%s: a conflict was not seen", call)
		}
	}
}

// ofPipelines matches the calls of the pipeline service.
var ofPipelines = regexp.MustCompile(`^/api/(runs|lint|pipelines|triggers)\b`)

// unreadable are the calls whose only conflict is a run that this version cannot read.
var unreadable = []string{"GET /api/runs/{id}/resolved", "GET /api/runs/{id}/diff", "POST /api/runs/{id}/again", "POST /api/runs/{id}/abort"}
