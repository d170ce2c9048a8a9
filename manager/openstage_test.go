package manager_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
)

// open opens the stage "s", with a lease of a minute, at a delegate that has passed the
// init.
func (s *server) open(more string) (delegate string) {
	s.t.Helper()
	delegate = s.register("d", dockerTypes)
	s.submit(`{"id":"s","hold":{"lease_ms":60000}` + more + `}`)
	s.pass(delegate, dockerTypes[0], succeeded)
	return delegate
}

// appendSteps appends steps with the given ids to the stage "s".
func (s *server) appendSteps(ids ...string) (st manager.Stage) {
	s.t.Helper()
	s.ok("POST", "/api/stages/s/steps?accountId=acc", stepsBody(ids...), &st)
	return st
}

func stepsBody(ids ...string) string {
	all := make([]string, 0, len(ids))
	for _, id := range ids {
		all = append(all, fmt.Sprintf(`{"id":%q,"data":{"run":{"commands":[%[1]q]}}}`, id))
	}
	return `{"steps":[` + strings.Join(all, ",") + `]}`
}

// change posts a call about the stage "s".
func (s *server) change(verb string) (st manager.Stage) {
	s.t.Helper()
	s.ok("POST", "/api/stages/s/"+verb+"?accountId=acc", "", &st)
	return st
}

// tasks returns the ids of the tasks that are offered to a delegate, by their steps.
func (s *server) tasks(delegate string) map[string]string {
	s.t.Helper()
	ids := map[string]string{}
	st := s.stage("s")
	for _, e := range s.poll(delegate).Events {
		for _, p := range append(st.Steps, st.Init, st.Cleanup) {
			if p.TaskID == e.TaskID {
				ids[p.ID] = e.TaskID
			}
		}
	}
	return ids
}

func stepOf(t *testing.T, st manager.Stage, id string) manager.StepState {
	t.Helper()
	for _, p := range st.Steps {
		if p.ID == id {
			return p
		}
	}
	require.Fail(t, "no step", "%s in %+v", id, st)
	return manager.StepState{}
}

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
	assert.Equal(t, manager.Running, stepOf(t, st, "two").Status)
	assert.Equal(t, manager.Queued, st.Cleanup.Status)

	require.Equal(t, 204, s.respond(d, tasks["two"], `{"code":"OK","data":{"command_execution_status":"FAILURE","exit_code":3}}`))
	s.pass(d, dockerTypes[1], succeeded)
	s.pass(d, dockerTypes[2], succeeded)
	st = s.ended("s")
	assert.Equal(t, manager.Failure, st.Status)
	assert.Equal(t, manager.FailureExitCode, st.FailureKind)
	assert.Equal(t, manager.FailureExitCode, stepOf(t, st, "two").FailureKind)
	assert.Empty(t, stepOf(t, st, "one").FailureKind)
}

func TestTheEndOfALeaseStopsTheStepsAndRunsTheCleanup(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.open("")
	s.appendSteps("one")
	task := s.take(d, dockerTypes[1])
	s.clock.Advance(40 * time.Second)
	s.beat(d)
	s.change("renew")
	s.clock.Advance(40 * time.Second)
	s.beat(d)
	require.Empty(t, s.poll(d).Aborted, "the lease was renewed")
	s.advanceUntil(20*time.Second, func() bool { return len(s.poll(d).Aborted) == 1 })
	require.Equal(t, 204, s.respond(d, task.ID, succeeded))
	s.pass(d, dockerTypes[2], succeeded)
	st := s.ended("s")
	assert.Equal(t, manager.Failure, st.Status)
	assert.Equal(t, manager.FailureLeaseEnded, st.FailureKind)
	assert.Contains(t, st.Error, "lease")
	assert.Equal(t, manager.FailureAborted, stepOf(t, st, "one").FailureKind)
}
