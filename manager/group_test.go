package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// registerInGroup registers a delegate of the group "g".
func (s *server) registerInGroup(name string) string {
	s.t.Helper()
	var out struct{ Resource struct{ DelegateID string } }
	s.ok("POST", "/api/agent/delegates/register?accountId=acc", `{"ng":true,"group":"g","delegateName":"`+name+`"}`, &out)
	return out.Resource.DelegateID
}

// Rule Q3: a stage continues at another delegate of its group if its delegate unregisters
// between two steps. If that one has acquired a step, the stage fails, and the group cleans up.
func TestAGroupOfDelegatesServesAStage(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.registerInGroup("a")
	s.submit(`{"id":"s1","steps":[{},{}]}`)
	s.pass(a, initTask, succeeded)
	b := s.registerInGroup("b")
	leave := func(id string) {
		s.ok("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+id+`"}`, nil)
	}
	leave(a)
	s.pass(b, executeTask, succeeded)
	assert.Equal(t, b, s.stage("s1").DelegateID)
	c := s.registerInGroup("c")
	s.take(b, executeTask)
	leave(b)
	st := s.ended("s1")
	assert.Equal(t, api.Failure, st.Status)
	assert.Contains(t, st.Error, `the delegate "b" has unregistered`)
	s.pass(c, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.stage("s1").Cleanup.Status)
	require.Len(t, s.m.Delegates(account), 1)
	assert.Equal(t, "g", s.m.Delegates(account)[0].Group)
	assert.Zero(t, s.m.Delegates(account)[0].Stages)
}

// A delegate that does not acquire a step in time loses the stage to its group.
func TestASlowDelegateLosesAStageToItsGroup(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AcquireTimeout = 5 * time.Second })
	a := s.registerInGroup("a")
	s.submit(`{"id":"s1","steps":[{}]}`)
	s.pass(a, initTask, succeeded)
	b := s.registerInGroup("b")
	s.advanceUntil(5*time.Second, func() bool { return len(s.poll(b).Events) == 1 })
	assert.Empty(t, s.poll(a).Events)
	s.pass(b, executeTask, succeeded)
	s.pass(b, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("s1").Status)
}
