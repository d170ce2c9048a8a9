package manager_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

func TestAppendedStepsRunAtTheSameTimeUntilTheStageIsFinished(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	assert.Empty(t, s.poll(d).Events, "the cleanup waits for the holder")
	assert.True(t, s.stage("s").Open)

	s.appendSteps("one", "two")
	tasks := s.tasks(d)
	require.Len(t, tasks, 2)
	for _, id := range tasks {
		require.Equal(t, 200, s.acquire(d, id).status)
	}
	s.appendSteps("three")
	require.Equal(t, 204, s.respond(d, tasks["one"],
		`{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"V":"1"}}}`))
	st := s.change("finish")
	assert.False(t, st.Open)
	assert.Equal(t, map[string]string{"V": "1"}, stepOf(t, st, "one").OutputVars)
	assert.Equal(t, api.Running, stepOf(t, st, "two").Status)
	assert.Equal(t, api.Queued, st.Cleanup.Status)

	require.Equal(t, 204, s.respond(d, tasks["two"], `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":3}}`))
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	st = s.ended("s")
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, api.FailureExitCode, st.FailureKind)
	assert.Equal(t, api.FailureExitCode, stepOf(t, st, "two").FailureKind)
	assert.Empty(t, stepOf(t, st, "one").FailureKind)
}

func TestAnAppendedStepIsToldTheDelegateOfItsStage(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	own := fmt.Sprintf(`"HARNESS_DELEGATE_ID":%q`, d)
	for i, c := range []struct{ environment, want string }{
		{`{"A":"1"}`, `{"A":"1",` + own + `}`},
		{`{"HARNESS_DELEGATE_ID":"mine"}`, `{"HARNESS_DELEGATE_ID":"mine"}`},
		{`null`, `{` + own + `}`},
	} {
		require.Equal(t, 202, s.call("POST", "/api/stages/s/steps?accountId=acc", fmt.Sprintf(`{"steps":[{"id":"s%d","data":{"environment":%s}}]}`, i, c.environment)).status)
		got := s.take(d, dockerTypes[1])
		var data struct{ Environment json.RawMessage }
		require.NoError(t, json.Unmarshal(got.Data, &data))
		assert.JSONEq(t, c.want, string(data.Environment))
		require.Equal(t, 204, s.respond(d, got.ID, succeeded))
	}
}

func TestARepeatedAppendChangesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	const path = "/api/stages/s/steps?accountId=acc"
	require.Equal(t, 202, s.call("POST", path, stepsBody("one")).status)
	before := s.stage("s")
	require.Equal(t, 200, s.call("POST", path, stepsBody("one")).status)
	assert.Equal(t, before, s.stage("s"))

	r := s.call("POST", path, `{"steps":[{"id":"two"},{"id":"one","data":{"run":{"commands":["rm"]}}}]}`)
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, `another step \"one\"`)
	assert.Len(t, s.stage("s").Steps, 1, "an append has all its steps or none")
	require.Equal(t, 202, s.call("POST", path, stepsBody("one", "two")).status, "one of them is new")

	s.change("finish")
	require.Equal(t, 200, s.call("POST", path, stepsBody("two", "one")).status, "the answer may have been lost")
	r = s.call("POST", path, stepsBody("two", "three"))
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, "it was finished")
	s.change("finish")
	s.passSteps(d, "one", "two")
	s.pass(d, dockerTypes[2], succeeded)
	s.ended("s")
	require.Equal(t, 200, s.call("POST", path, stepsBody("one")).status, "also after the end")
	s.change("finish")
	require.Equal(t, 409, s.call("POST", "/api/stages/s/renew?accountId=acc", "").status)
}

func TestStepsThatAreAppendedBeforeTheInitHasEndedWaitForIt(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000},"steps":[{"id":"first"},{"id":"second"}]}`)
	s.appendSteps("one")
	d := s.register("d", dockerTypes)
	init := s.take(d, dockerTypes[0])
	s.appendSteps("two")
	s.change("finish")
	assert.Empty(t, s.poll(d).Events)
	require.Equal(t, 204, s.respond(d, init.ID, succeeded))
	assert.Len(t, s.tasks(d), 3, "the first step of the submission runs beside the appended ones")
	s.passSteps(d, "one", "two")
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	assert.Equal(t, api.Success, s.ended("s").Status)
}

func TestAppendedStepsAreSkippedAfterAFailedInit(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("one")
	d := s.register("d", dockerTypes)
	s.pass(d, dockerTypes[0], `{"code":"OK","data":{"command_execution_status":"FAILURE","failure_kind":"image"}}`)
	r := s.call("POST", "/api/stages/s/steps?accountId=acc", stepsBody("two"))
	require.Equal(t, 409, r.status)
	assert.Contains(t, r.body, "its init failed")
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, api.FailureImage, st.FailureKind)
	assert.Equal(t, api.Skipped, stepOf(t, st, "one").Status)
}

func TestTheInitListsTheAnnouncedImages(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"s","hold":{"lease_ms":60000,"announced":[
		{"id":"later","data":{"image":"r.example/later:1","run":{"commands":["secret"]}}},{"id":"host"}]},
		"steps":[{"id":"first","data":{"image":"r.example/first:1"}}]}`)
	init := s.take(d, dockerTypes[0])
	assert.Contains(t, string(init.Data), `{"id":"first","run":{},"environment":{},"image":"r.example/first:1"}`)
	assert.Contains(t, string(init.Data), `{"id":"later","run":{},"environment":{},"image":"r.example/later:1"}`)
	assert.NotContains(t, string(init.Data), "secret")
	assert.Empty(t, s.stage("s").Steps[1:], "an announced step is not a step yet")
}

func TestEachChangeOfAnAppendedStepIsAnEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}}`)
	s.appendSteps("one", "two")
	d := s.register("d", dockerTypes)
	s.pass(d, dockerTypes[0], succeeded)
	tasks := s.tasks(d)
	require.Equal(t, 200, s.acquire(d, tasks["one"]).status)
	require.Equal(t, 204, s.respond(d, tasks["one"], `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":1}}`))
	s.submit(`{"id":"t","hold":{"lease_ms":60000}}`)
	s.ok("POST", "/api/stages/t/steps?accountId=acc", stepsBody("never"), nil)
	s.ok("POST", "/api/stages/t/abort?accountId=acc", "", nil)
	got := []string{}
	for _, e := range s.m.Events(account, 0).Events {
		if e.Type == "step" && e.Step != "init" && e.Step != "cleanup" {
			got = append(got, strings.TrimSpace(fmt.Sprint(e.Step, " ", e.Status, " ", e.FailureKind)))
		}
	}
	assert.Equal(t, []string{"one QUEUED", "two QUEUED", "one RUNNING", "one FAILURE exit_code", "never QUEUED", "never SKIPPED"}, got)
}

func TestAStepIsShownWithoutItsSecretOutputs(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	s.ok("POST", "/api/stages/s/steps?accountId=acc", `{"steps":[{"id":"one","data":{"outputs":[{"key":"T","value":"T","type":"SECRET"}]}}]}`, nil)
	s.pass(d, dockerTypes[1], `{"code":"OK","data":{"command_execution_status":"SUCCESS","output_vars":{"V":"1","T":"fake-secret"}}}`)
	r := s.call("GET", "/api/stages/s/steps/one?accountId=acc", "")
	require.Equal(t, 200, r.status)
	assert.NotContains(t, r.body, "fake-secret")
	p, err := s.m.Step(account, "s", "one")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"V": "1", "T": "[secret]"}, p.OutputVars)
}
