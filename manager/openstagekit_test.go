package manager_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
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
func (s *server) appendSteps(ids ...string) (st api.Stage) {
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
func (s *server) change(verb string) (st api.Stage) {
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

func stepOf(t *testing.T, st api.Stage, id string) api.StepState {
	t.Helper()
	for _, p := range st.Steps {
		if p.ID == id {
			return p
		}
	}
	require.Fail(t, "no step", "%s in %+v", id, st)
	return api.StepState{}
}

// passSteps acquires the tasks of steps and lets them succeed.
func (s *server) passSteps(delegate string, steps ...string) {
	s.t.Helper()
	tasks := s.tasks(delegate)
	for _, id := range steps {
		require.Equal(s.t, 200, s.acquire(delegate, tasks[id]).status, id)
		require.Equal(s.t, 204, s.respond(delegate, tasks[id], succeeded))
	}
}
