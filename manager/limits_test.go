package manager_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

// Lists and logs show a delegate's message about a failure, so the manager shortens
// it.
func TestMessagesOfDelegatesAreShortened(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	long := strings.Repeat("é", 100_000)
	for name, body := range map[string]string{
		"error": `{"code":"FAILED","data":{"error_msg":"` + long + `"}}`,
		"code":  `{"code":"` + long + `"}`,
		"state": `{"code":"OK","data":{"command_execution_status":"` + long + `"}}`,
	} {
		s.ok("POST", "/api/tasks?accountId=acc", `{"id":"`+name+`","type":"custom"}`, nil)
		require.Equal(t, 200, s.acquire(id, name).status)
		require.Equal(t, 204, s.respond(id, name, body))
		got := s.task(name)
		assert.Equal(t, api.Failure, got.Status)
		assert.Contains(t, got.Error, "éé", name)
		assert.Less(t, len(got.Error)+len(got.Code), 5<<10, name)
		assert.NotContains(t, got.Error, "\uFFFD", name)
	}
}

// An id is a segment of a path. A task whose id cannot be one could never be
// acquired.
func TestIDsThatCannotBeInAPathAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, id := range []string{".", "..", "a\nb", "a\x00", "a\x7f", strings.Repeat("a", 257)} {
		text := asJSON(t, id)
		assert.Equal(t, 400, s.call("POST", "/api/stages?accountId=acc", withInit(`{"id":`+text+`}`)).status, text)
		assert.Equal(t, 400, s.call("POST", "/api/tasks?accountId=acc", `{"type":"x","id":`+text+`}`).status, text)
		assert.Equal(t, 400, s.call("POST", "/api/stages?accountId=acc", `{"steps":[{"id":`+text+`}]}`).status, text)
	}
	id := s.register("d", []string{"custom"})
	for _, odd := range []string{"a/b", "a b", "ä%2F?#&", "...", "a+b"} {
		s.ok("POST", "/api/tasks?accountId=acc", `{"type":"custom","id":`+asJSON(t, odd)+`}`, nil)
		path := url.PathEscape(odd)
		require.Equal(t, 200, s.acquire(id, path).status, odd)
		require.Equal(t, 204, s.respond(id, path, succeeded), odd)
		assert.Equal(t, odd, s.task(path).ID)
	}
}

// A small request must not use much memory.
func TestTheStepsOfAStageAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	steps := func(n int) string { return `{"steps":[{}` + strings.Repeat(",{}", n-1) + `]}` }
	assert.Equal(t, 202, s.call("POST", "/api/stages?accountId=acc", steps(10_000)).status)
	r := s.call("POST", "/api/stages?accountId=acc", steps(10_001))
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, "it may have at most 10000")
}

// Rule T8: each step has its own log, under a key that every writer can send,
// with any id of a step.
func TestEachStepHasItsOwnLogKey(t *testing.T) {
	t.Parallel()
	var prefixes sync.Map
	s := start(t, func(c *manager.Config) {
		c.Logs = func(_, _, prefix string) *stage.LogConfig {
			prefixes.Store(prefix, true)
			return &stage.LogConfig{URL: "http://logs.invalid"}
		}
	})
	seen := map[string]string{}
	for id, steps := range map[string][]string{
		":init": {":init"}, "b": {"init", ":init", "_init"}, "c/": {":init", ":init:0"}, "c_": {":init"}, "c:": {"init"},
		"build-1": {"test"}, "a": {"b/c", "b_c", "..."}, "a/b": {"c"}, "a b": {"c"}, "a_b": {"c"}, "../x": {"c"}, "é": {"è", "e"},
	} {
		req := api.StageRequest{ID: id}
		for _, step := range steps {
			req.Steps = append(req.Steps, api.StepRequest{ID: step})
		}
		st, err := s.m.SubmitStage(t.Context(), account, req)
		require.NoError(t, err)
		for _, step := range append(st.Steps, st.Init) {
			assert.Regexp(t, `^[A-Za-z0-9/:._-]+$`, step.LogKey)
			assert.NotContains(t, step.LogKey, "..")
			assert.Equal(t, 1, strings.Count(step.LogKey, "/"), step.LogKey)
			assert.Empty(t, seen[step.LogKey], "%s is the key of two steps", step.LogKey)
			seen[step.LogKey] = id + " " + step.ID
			_, known := prefixes.Load(step.LogKey[:strings.Index(step.LogKey, "/")+1])
			assert.True(t, known, step.LogKey)
		}
	}
	assert.Equal(t, "build-1 test", seen["build-1/test"], "a plain key is not changed")
	assert.Equal(t, "build-1 init", seen["build-1/:init"], "the plain key of an init is not changed")
}

// A name or id from outside cannot forge a line of the log.
func TestTheLogCannotBeForged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := start(t, func(c *manager.Config) { c.Logger = zerolog.New(zerolog.SyncWriter(&log)) })
	evil := "x\"}\n{\"level\":\"error\",\"message\":\"forged"
	id := s.register(evil, nil, evil)
	s.call("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":`+asJSON(t, evil)+`}`)
	s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	require.NoError(t, s.m.Close())
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 2)
	for _, l := range lines {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &fields))
		assert.Equal(t, "info", fields["level"])
	}
}

// A closed manager holds no polls. Its answers make clients pause until the server
// ends.
func TestAClosedManagerMakesClientsPause(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.register("d", []string{"custom"})
	held := s.held(t.Context(), id, "")
	s.waits(1)
	require.NoError(t, s.m.Close())
	for _, r := range []reply{within5(t, held), within5(t, s.held(t.Context(), id, ""))} {
		assert.Equal(t, 200, r.status)
		assert.NotContains(t, r.header, http.CanonicalHeaderKey("Dlite-Cursor"))
	}
	sync := make(chan int, 1)
	go func() {
		r, _ := s.do(context.Background(), "POST", "/api/tasks?accountId=acc", `{"type":"custom","sync":true}`)
		sync <- r.status
	}()
	assert.Equal(t, 503, within5(t, sync), "the client must repeat the call")
}

// Rule Q1: a stage that is aborted in any state ends, has the right status and frees
// its slot.
func TestAbortingAStageInEveryState(t *testing.T) {
	t.Parallel()
	offer := func(taskType string) func(*server, string) {
		return func(s *server, id string) { s.pending(id, taskType) }
	}
	take := func(taskType string) func(*server, string) {
		return func(s *server, id string) { s.take(id, taskType) }
	}
	pass := func(taskType string) func(*server, string) {
		return func(s *server, id string) { s.pass(id, taskType, succeeded) }
	}
	for name, c := range map[string]struct {
		before  []func(*server, string)
		want    api.Status
		steps   string // of the init, the step and the cleanup
		running bool   // the running part must be answered
		cleans  bool
	}{
		"its init is offered": {[]func(*server, string){offer(initTask)}, api.Aborted, "ABORTED SKIPPED SKIPPED", false, false},
		"its init runs":       {[]func(*server, string){take(initTask)}, api.Aborted, "ABORTED SKIPPED SUCCESS", true, true},
		"its step is offered": {[]func(*server, string){pass(initTask), offer(executeTask)}, api.Aborted, "SUCCESS ABORTED SUCCESS", false, true},
		"its step runs":       {[]func(*server, string){pass(initTask), take(executeTask)}, api.Aborted, "SUCCESS ABORTED SUCCESS", true, true},
		"its cleanup is offered": {[]func(*server, string){pass(initTask), pass(executeTask), offer(cleanupTask)}, api.Success,
			"SUCCESS SUCCESS SUCCESS", false, true},
		"it has ended": {[]func(*server, string){pass(initTask), pass(executeTask), pass(cleanupTask)}, api.Success,
			"SUCCESS SUCCESS SUCCESS", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			id := s.register("d", dockerTypes)
			s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
			s.submit(`{"id":"s1","steps":[{}]}`)
			s.submit(`{"id":"s2"}`)
			for _, f := range c.before {
				f(s, id)
			}
			for range 2 {
				s.ok("POST", "/api/stages/s1/abort?accountId=acc", "", nil)
			}
			if c.running {
				stops := s.poll(id).Aborted
				require.Len(t, stops, 1)
				require.Equal(t, 204, s.respond(id, stops[0], failure))
			}
			if c.cleans {
				s.pass(id, cleanupTask, succeeded)
			}
			st := s.ended("s1")
			assert.Equal(t, c.want, st.Status)
			assert.Equal(t, c.steps, fmt.Sprint(st.Init.Status, " ", st.Steps[0].Status, " ", st.Cleanup.Status))
			assert.Empty(t, s.poll(id).Aborted)
			s.pass(id, initTask, succeeded) // the slot now belongs to s2
			s.pass(id, cleanupTask, succeeded)
			assert.Equal(t, api.Success, s.ended("s2").Status)
			assert.Zero(t, s.m.Delegates(account)[0].Stages)
			assert.Zero(t, s.m.Delegates(account)[0].Running)
		})
	}
}

// Rule Q4: a delegate that restarts has its old name and another id. It is another
// delegate: it does not own the stages of the old one, which end when the old one is
// lost.
func TestARestartedDelegateIsAnotherDelegate(t *testing.T) {
	t.Parallel()
	s := start(t)
	old := s.register("d", dockerTypes)
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(old, initTask, succeeded)
	step := s.take(old, executeTask)
	restarted := s.register("d", dockerTypes)
	assert.NotEqual(t, old, restarted)
	assert.Empty(t, s.poll(restarted).Events)
	assert.Equal(t, 204, s.acquire(restarted, step.ID).status, "another delegate has the task")
	assert.Equal(t, 409, s.respond(restarted, step.ID, succeeded))
	assert.Equal(t, api.Running, s.stage("s1").Status)
	s.clock.Advance(59 * time.Second)
	require.Equal(t, 200, s.beat(restarted))
	s.clock.Advance(time.Second)
	assert.Equal(t, api.Failure, s.ended("s1").Status)
	assert.Zero(t, s.m.Delegates(account)[0].Stages)
	s.submit(`{"id":"s2"}`)
	s.take(restarted, initTask)
}
