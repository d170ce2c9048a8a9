package manager_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

// listOf returns the JSON of a list of n strings.
func listOf(n int, s string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"`+s+`",`, n), ",") + "]"
}

// Each list, string and number of a call is
// bounded, and the error names the member.
func TestEveryMemberOfACallIsBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	delegate := s.register("d", nil)
	long, deep := strings.Repeat("x", 1<<10+1), strings.Repeat("[", 101)+strings.Repeat("]", 101)
	stages, tasks := "POST /api/stages", "POST /api/tasks"
	schedule, limit := "PUT /api/schedules/x", "PUT /api/limits"
	connector, connectorTest := "PUT /api/connectors/x", "POST /api/connectors/x/test"
	register, beat := "POST /api/agent/delegates/register", "POST /api/agent/delegates/heartbeat-with-polling"
	step := func(members string) string { return `{"steps":[{},{` + members + `}]}` }
	valid := func(members string) string { return `{"cron":"@daily","stage":{"steps":[{}]},` + members + `}` }
	for _, c := range []struct{ call, body, path string }{
		{stages, `{"id":"` + long + `","steps":[{}]}`, "id has"},
		{stages, `{"name":"` + long + `","steps":[{}]}`, "name has 1025 bytes; it may have at most 1024"},
		{stages, `{"selectors":` + listOf(1001, "a") + `,"steps":[{}]}`, "selectors has 1001 elements; it may have at most 1000"},
		{stages, `{"selectors":["a","` + long + `"],"steps":[{}]}`, "selectors[1] has"},
		{stages, `{"timeout_ms":315360000001,"steps":[{}]}`, "timeout_ms is 315360000001; it must be from 0 to 315360000000"},
		{stages, `{"queue_timeout_ms":-1,"steps":[{}]}`, "queue_timeout_ms is -1"},
		{stages, `{"pipeline":"` + long + `","steps":[{}]}`, "pipeline has"},
		{stages, `{"priority":"URGENT","steps":[{}]}`, `priority is \"URGENT\"; it must be NORMAL or HIGH`},
		{stages, `{"infra":"moon","steps":[{}]}`, `infra is \"moon\"; it must be local, vm or kubernetes`},
		{stages, `{"labels":{"a":"` + long + `"},"steps":[{}]}`, "labels.a has"},
		{stages, `{"retry":{"max_attempts":101},"steps":[{}]}`, "retry.max_attempts is 101; it must be from 0 to 100"},
		{stages, `{"retry":{"on":` + listOf(4, "lost") + `},"steps":[{}]}`, "retry.on has 4 elements"},
		{stages, `{"retry":{"max_backoff_ms":-1},"steps":[{}]}`, "retry.max_backoff_ms is -1"},
		{stages, `{"steps":[{}` + strings.Repeat(",{}", 10_000) + `]}`, "steps has more than 10000 elements; it may have at most 10000"},
		{stages, `{"cleanup":{"x":"` + strings.Repeat("x", 1<<20) + `"},"steps":[{}]}`, "cleanup has"},
		{stages, step(`"id":"` + long + `"`), "steps[1].id has"},
		{stages, step(`"name":"` + long + `"`), "steps[1].name has"},
		{stages, step(`"timeout_ms":-1`), "steps[1].timeout_ms is -1"},
		{stages, step(`"run_on":"never"`), "steps[1].run_on is"},
		{stages, step(`"data":{"timeout":999999999}`), "steps[1].data.timeout"},
		{stages, step(`"data":{"environment":{` + members(10_001) + `}}`), "steps[1].data.environment has more than"},
		{stages, step(`"data":{"files":` + listOf(10_001, "") + `}`), "steps[1].data.files has more than"},
		{stages, step(`"data":{"volumes":[` + deep + `]}`), "is nested too deeply"},
		{stages, step(`"data":{"n":1` + strings.Repeat("0", 64) + `}`), "steps[1].data.n is a number of 65 bytes"},
		{stages, step(`"data":{"outputs":[` + secretOutputs(101) + `]}`), "steps[1].data.outputs of the type SECRET has 101 elements; it may have at most 100"},
		{stages, `{"init":{"envs":{"A":"` + strings.Repeat("x", 16<<20+1) + `"}}}`, "init.envs.A has"},
		{tasks, `{"type":"` + long + `"}`, "type has"},
		{tasks, `{"id":"t"}`, "type is missing"},
		{tasks, `{"type":"x","timeout":-1}`, "timeout is -1"},
		{tasks, `{"type":"x","selectors":` + listOf(1001, "a") + `}`, "selectors has"},
		{tasks, `{"type":"x","data":` + deep + `}`, "is nested too deeply"},
		{schedule, valid(`"name":"` + long + `"`), "name has"},
		{schedule, valid(`"time_zone":"` + long + `"`), "time_zone has"},
		{schedule, valid(`"missed":"never"`), "missed is"},
		{schedule, `{"cron":"` + long + `","stage":{"steps":[{}]}}`, "cron has"},
		{schedule, `{"cron":"@every -5s","stage":{"steps":[{}]}}`, `cron is \"@every -5s\"`},
		{schedule, `{"cron":"CRON_TZ=UTC @every 1.5s","stage":{"steps":[{}]}}`, "whole seconds"},
		{schedule, `{"cron":"@every 0s","stage":{"steps":[{}]}}`, "whole seconds"},
		{schedule, `{"cron":"@daily","stage":{"steps":[{}],"selectors":` + listOf(1001, "a") + `}}`, "stage: invalid request: selectors has"},
		{limit, `{"group":"pipeline:` + long + `","max":1}`, "group has"},
		{limit, `{"group":"account","max":-1}`, "max is -1"},
		{limit, `{"group":"account","max":2147483648}`, "max is 2147483648"},
		{connector, `{}`, "kind is missing"},
		{connector, `{"kind":"` + long + `"}`, "kind has"},
		{connector, `{"kind":"git","address":"` + strings.Repeat("x", 4<<10+1) + `"}`, "address has 4097 bytes"},
		{connector, `{"kind":"git","address":"${{secrets.env://X}}"}`, "address contains ${{"},
		{connector, `{"kind":"git","address":"https://bot:visible@git.example"}`, "address has a password"},
		{connector, `{"kind":"git","secrets":{` + members(51) + `}}`, "secrets has 51 elements"},
		{connector, `{"kind":"git","options":{"ca":"` + strings.Repeat("x", 64<<10) + `"}}`, "options has"},
		{connector, `{"kind":"git","options":{"a":"<{ b }>"}}`, "options.a contains"},
		{connector, `{"kind":"git","selectors":` + listOf(1001, "a") + `}`, "selectors has"},
		{connector, `{"kind":"git","secret":{}}`, "secret"},
		{connectorTest, `{"timeout_ms":300001}`, "timeout_ms is 300001"},
		{register, `{"tags":` + listOf(1001, "a") + `}`, "tags has"},
		{register, `{"tags":["` + long + `"]}`, "tags[0] has"},
		{register, `{"supportedTaskTypes":` + listOf(1001, "a") + `}`, "supportedTaskTypes has"},
		{register, `{"delegateName":"` + long + `"}`, "delegateName has"},
		{register, `{"hostName":"` + long + `"}`, "hostName has"},
		{register, `{"version":"` + long + `"}`, "version has"},
		{register, `{"extra":` + deep + `}`, "extra[0][0]"},
		{beat, `{"delegateId":"` + delegate + `","tags":` + listOf(1001, "a") + `}`, "tags has"},
		{"POST /api/agent/delegates/register-delegate-capacity/" + delegate, `{"maximumNumberOfBuilds":2147483648}`, "maximumNumberOfBuilds is"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		r := s.call(method, path+"?accountId=acc", c.body)
		assert.Equal(t, 400, r.status, "%s %.80s: %.200s", c.call, c.body, r.body)
		assert.Contains(t, r.body, c.path, "%s %.80s", c.call, c.body)
		assert.Less(t, len(r.body), 500, "the error does not repeat a long value")
	}
}

func members(n int) string {
	var b strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&b, `,"V%d":""`, i)
	}
	return b.String()[1:]
}

func secretOutputs(n int) string {
	return strings.TrimSuffix(strings.Repeat(`{"key":"K","value":"aaa","type":"SECRET"},`, n), ",")
}

// Secret outputs are searched in all others, so their number and size are bounded.
func TestTheOutputsOfAnAnswerAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	for i, members := range []string{
		`"outputs":[` + secretOutputs(101) + `]`,
		`"output_vars":{"A":"` + strings.Repeat("a", 1<<20) + `"}`,
		`"outputs":[{"key":"A","value":"` + strings.Repeat("a", 1<<20) + `"}]`,
	} {
		id := fmt.Sprint("s", i)
		s.submit(`{"id":"` + id + `","steps":[{"id":"a","data":{}}]}`)
		s.pass(d, initTask, succeeded)
		step := s.take(d, executeTask)
		assert.Equal(t, 400, s.respond(d, step.ID, `{"code":"OK","data":{"command_execution_status":"SUCCESS",`+members+`}}`))
		s.pass(d, cleanupTask, succeeded)
		assert.Contains(t, s.ended(id).Error, "data.output")
	}
}

// Bounds must not refuse the calls of real peers.
func TestLargeCallsOfRealPeersPass(t *testing.T) {
	t.Parallel()
	s := start(t)
	name := strings.Repeat("x", 1000)
	for _, body := range []string{
		`{"selectors":` + listOf(1000, name) + `,"steps":[{}]}`,
		`{"steps":[{}` + strings.Repeat(",{}", 9_999) + `]}`,
		`{"steps":[{"data":{"environment":{` + members(9_990) + `},"run":{"commands":["` + strings.Repeat("x", 1<<20) + `"]}}}]}`,
		`{"timeout_ms":315360000000,"queue_timeout_ms":315360000000,"steps":[{"timeout_ms":315360000000}]}`,
		`{"init":{"x":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}}`,
	} {
		assert.Equal(t, 202, s.call("POST", "/api/stages?accountId=acc", body).status, "%.80s", body)
	}
	assert.Equal(t, 202, s.call("POST", "/api/tasks?accountId=acc", `{"type":"x","data":[0`+strings.Repeat(",0", 50_000)+`]}`).status)
	d := s.register(name, []string{name}, strings.Split(strings.Repeat(name+",", 999)+name, ",")...)
	for _, n := range []string{"-1", "0", "2147483647"} {
		assert.Equal(t, 204, s.call("POST", "/api/agent/delegates/register-delegate-capacity/"+d+"?accountId=acc", `{"maximumNumberOfBuilds":`+n+`}`).status)
	}
}

// Class of the defect: a payload that a submitter may nest as deeply as encoding/json
// reads, but that the manager cannot read again inside of its command, would stop every
// manager of the store for ever. The first command that is read again is the next one.
func TestNoNestingStopsTheManager(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", []string{"custom"})
	for n := 9_980; n < 10_001; n += 2 {
		nested := strings.Repeat("[", n) + strings.Repeat("]", n)
		assert.Equal(t, 400, s.call("POST", "/api/stages?accountId=acc", `{"init":{"x":`+nested+`}}`).status, n)
		assert.Equal(t, 400, s.call("POST", "/api/tasks?accountId=acc", `{"type":"x","data":`+nested+`}`).status, n)
	}
	for i, answer := range []string{
		`{"code":"OK","data":` + strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999) + `}`,
		`{"code":"OK","data":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}`,
	} {
		id := fmt.Sprint("t", i)
		s.ok("POST", "/api/tasks?accountId=acc", `{"type":"custom","id":"`+id+`"}`, nil)
		s.take(d, "custom")
		r := s.call("POST", "/api/agent/v2/tasks/"+id+"/delegates/"+d+"?accountId=acc", answer)
		assert.Equal(t, 400, r.status)
		assert.Contains(t, r.body, "is nested too deeply")
		got := s.task(id)
		assert.Equal(t, api.Failure, got.Status, "the delegate does not answer again")
		assert.Contains(t, got.Error, "the manager refused the delegate's answer")
	}
}

// Rule T1: a delegate that has done nothing must not count as successful.
func TestAnAnswerWithoutAStatusIsAFailure(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	for i, empty := range []string{`{"code":"OK","data":{}}`, `{"code":"OK","data":null}`, `{"code":"OK"}`, `{"code":"OK","data":[]}`} {
		id := fmt.Sprint("s", i)
		s.submit(`{"id":"` + id + `","steps":[{"id":"a","data":{}}]}`)
		s.pass(d, initTask, succeeded)
		s.pass(d, executeTask, empty)
		s.pass(d, cleanupTask, empty)
		got := s.ended(id)
		assert.Equal(t, api.Failure, got.Status, empty)
		assert.Contains(t, got.Error, "has no command_execution_status", empty)
		assert.Equal(t, api.Failure, got.Cleanup.Status, empty)
		assert.Contains(t, got.Cleanup.Error, "has no command_execution_status", empty)
	}
}

// The token for the log service covers the stage's own logs. With another key the log
// would be lost.
func TestALogKeyOutsideOfTheStageIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.Logs = func(account, _, prefix string) *stage.LogConfig {
			return &stage.LogConfig{URL: "http://127.0.0.1:9", AccountID: account, Token: "for " + prefix}
		}
	})
	post := func(id, data string) reply {
		return s.call("POST", "/api/stages?accountId=acc", `{"id":"`+id+`","steps":[{"id":"a","data":`+data+`}]}`)
	}
	r := post("s1", `{"log_key":"other/a"}`)
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.body, `steps[0].data.log_key is \"other/a\"`)
	assert.Contains(t, r.body, `must begin with \"s1/\"`)
	assert.Equal(t, 202, post("s2", `{"log_key":"s2/mine"}`).status)
	assert.Equal(t, 202, post("s3", `{"log_key":"other/a","log_config":{"url":"http://logs.example"}}`).status)
	assert.Equal(t, 400, post("s4", `{"log_key":"s4/`+strings.Repeat("x", 1<<10)+`"}`).status)
	r = s.call("POST", "/api/stages?accountId=acc", `{"id":"s5","init":{"log_key":"s50/init"}}`)
	assert.Contains(t, r.body, "init.log_key is")
}

// Millions of missed times cost the manager's loop little.
func TestALongOutageOfAFrequentScheduleIsCheap(t *testing.T) {
	t.Parallel()
	for _, cron := range []string{"@every 1s", "* * * * * *"} {
		s := start(t)
		s.ok("PUT", "/api/schedules/often?accountId=acc", `{"cron":"`+cron+`","missed":"all","task":{"type":"x"}}`, nil)
		begun := wallNow()
		s.clock.Advance(365 * 24 * time.Hour)
		var got api.Schedule
		require.Eventually(t, func() (ok bool) {
			var err error
			got, err = s.m.Schedule(account, "often")
			return err == nil && got.Last.Equal(s.clock.Now())
		}, 10*time.Second, 5*time.Millisecond, cron)
		assert.Less(t, wallNow().Sub(begun), 5*time.Second)
		_, err := s.m.Task(account, got.LastID)
		require.NoError(t, err)
	}
}
