package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// Rules Q1 and Q4: after any parallel calls in any order, with a running clock,
// there is no deadlock, all work ends and every slot is free.
func TestAllWorkEndsAfterRandomCalls(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.HeartbeatTimeout, c.AcquireTimeout, c.AbortGrace = 20*time.Second, 5*time.Second, 3*time.Second
		c.ForgetLost, c.Retention, c.MaxFinished = time.Minute, 2*time.Minute, 20
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for seed := range uint64(4) {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for i := range 400 {
				s.step(ctx, r, fmt.Sprint(seed, "-", i))
			}
		})
	}
	clients.Wait()
	require.NoError(t, ctx.Err(), "something locked up")

	for _, d := range s.m.Delegates(account) {
		s.call("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+d.ID+`"}`)
	}
	for _, st := range s.m.Stages(account) {
		st, err := s.m.AbortStage(ctx, account, st.ID)
		require.NoError(t, err)
		assert.True(t, st.Status.Ended(), "%+v", st)
	}
	id := s.register("last", dockerTypes)
	s.submit(`{"id":"last"}`)
	s.pass(id, initTask, succeeded)
	s.pass(id, cleanupTask, succeeded)
	assert.Equal(t, api.Success, s.ended("last").Status)
	assert.Zero(t, s.m.Delegates(account)[0].Stages)
}

// step makes one random call, either correct or wrong, as a delegate or a submitter.
func (s *server) step(ctx context.Context, r *rand.Rand, name string) {
	delegates, stages := s.m.Delegates(account), s.m.Stages(account)
	d, st := "nobody", "nothing"
	if len(delegates) > 0 {
		d = delegates[r.IntN(len(delegates))].ID
	}
	if len(stages) > 0 {
		st = stages[r.IntN(len(stages))].ID
	}
	send := func(method, path, body string) reply {
		got, err := s.do(ctx, method, path, body)
		if err != nil {
			s.t.Errorf("%s %s: %v", method, path, err)
		} else if got.status >= 500 {
			s.t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
		}
		return got
	}
	switch n := r.IntN(100); {
	case n < 5 && len(delegates) < 6:
		send("POST", "/api/agent/delegates/register?accountId=acc", `{"delegateName":"d","supportedTaskTypes":["custom","local_init","local_execute","local_cleanup"]}`)
	case n < 7:
		send("POST", "/api/agent/delegates/unregister?accountId=acc", `{"delegateId":"`+d+`"}`)
	case n < 15:
		send("POST", "/api/agent/delegates/heartbeat-with-polling?accountId=acc", fmt.Sprintf(`{"delegateId":%q,"draining":%t}`, d, r.IntN(4) == 0))
	case n < 18:
		send("POST", "/api/agent/delegates/register-delegate-capacity/"+d+"?accountId=acc", fmt.Sprintf(`{"maximumNumberOfBuilds":%d}`, r.IntN(4)))
	case n < 30:
		send("POST", "/api/stages?accountId=acc", `{"id":"`+name+`","timeout_ms":30000,"steps":[{"timeout_ms":9000},{"run_on":"always"}]}`)
	case n < 34:
		send("POST", "/api/tasks?accountId=acc", `{"id":"`+name+`","type":"custom","timeout_ms":9000}`)
	case n < 38:
		send("POST", "/api/stages/"+st+"/abort?accountId=acc", "")
	case n < 42:
		s.clock.Advance(time.Duration(r.IntN(6)) * time.Second)
	default:
		s.work(send, r, d)
	}
}

// work acquires the tasks of a delegate's list and answers some of them.
func (s *server) work(send func(method, path, body string) reply, r *rand.Rand, d string) {
	var l list
	if got := send("GET", "/api/agent/delegates/"+d+"/task-events?accountId=acc&wait=0", ""); got.status == 200 {
		assert.NoError(s.t, json.Unmarshal([]byte(got.body), &l))
	}
	for _, e := range l.Events {
		send("PUT", "/api/agent/v2/delegates/"+d+"/tasks/"+e.TaskID+"/acquire?accountId=acc", "")
		answers := []string{succeeded, succeeded, succeeded, failure, `{"code":"RETRY_ON_OTHER_DELEGATE"}`, `{"code":"OK","data":{"command_execution_status":"RUNNING"}}`}
		for range r.IntN(3) {
			send("POST", "/api/agent/v2/tasks/"+e.TaskID+"/delegates/"+d+"?accountId=acc", answers[r.IntN(len(answers))])
		}
	}
	for _, id := range l.Aborted {
		send("POST", "/api/agent/v2/tasks/"+id+"/delegates/"+d+"?accountId=acc", failure)
	}
}
