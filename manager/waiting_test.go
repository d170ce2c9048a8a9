package manager_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var vmTypes = []string{"DLITE_CI_VM_INITIALIZE_TASK", "DLITE_CI_VM_EXECUTE_TASK", "DLITE_CI_VM_CLEANUP_TASK"}

// The answer to a heartbeat tells a delegate with machines how many stages wait for it, by their pools. Other delegates
// get no numbers.
func TestAHeartbeatTellsHowManyStagesWaitForMachines(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, plain := s.register("machines", vmTypes, "linux"), s.register("plain", dockerTypes)
	s.ok("POST", "/api/agent/delegates/register-delegate-capacity/"+id+"?accountId=acc", `{"maximumNumberOfBuilds":1}`, nil)
	beat := func(id string) string {
		r := s.call("POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", `{"delegateId":"`+id+`"}`)
		require.Equal(t, 200, r.status, r.body)
		return r.body
	}
	assert.JSONEq(t, `{"waitingStages":{}}`, beat(id))
	const large = `"init":{"network":{"options":{"pool_id":"large"}}}`
	for _, body := range []string{
		`{"id":"a","infra":"vm"}`, `{"id":"b","infra":"vm"}`, `{"id":"c","infra":"vm",` + large + `}`, `{"id":"d","infra":"vm",` + large + `,"pipeline":"web"}`,
		`{"id":"e","infra":"vm","selectors":["windows"]}`, `{"id":"f"}`, `{"id":"g","infra":"vm","init":{"network":{"options":{"pool_id":5}}}}`,
	} {
		s.submit(body)
	}
	assert.JSONEq(t, `{"waitingStages":{"":2,"large":2}}`, beat(id), "one is offered to it")
	assert.JSONEq(t, `{}`, beat(plain))
	s.ok("PUT", "/api/limits?accountId=acc", `{"group":"pipeline:web","max":0}`, nil)
	s.ok("POST", "/api/pause?accountId=acc", `{}`, nil)
	assert.JSONEq(t, `{"waitingStages":{}}`, beat(id), "more machines would not help")
}
