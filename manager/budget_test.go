package manager_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// refused fails the test unless the call gets 429, with the name of the budget.
func (s *server) refused(name, method, path, body string) {
	s.t.Helper()
	r := s.call(method, path, body)
	assert.Equal(s.t, 429, r.status, "%.200s", r.body)
	assert.NotEmpty(s.t, r.header.Get("Retry-After"))
	assert.Contains(s.t, r.body, "the budget is used up: "+name+" of ")
}

// Each budget of an account refuses a call that exceeds it, and is free again at the end. It
// counts the state, so it also holds after a restart and for other managers.
func TestAnAccountStaysInItsBudget(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) {
		c.AccountBudget = manager.Budget{Works: 2, Bytes: 64 << 10, Delegates: 1, Schedules: 1}
	})
	const stages, tasks, schedules = "/api/stages?accountId=acc", "/api/tasks?accountId=acc", "/api/schedules/"
	d := s.register("d", dockerTypes)
	s.refused("delegates", "POST", "/api/agent/delegates/register?accountId=acc", `{}`)
	s.ok("POST", "/api/agent/delegates/register?accountId=acc", `{"delegateId":"`+d+`"}`, nil) // again

	minutely := `{"cron":"* * * * *","stage":{"steps":[{}]}}`
	s.ok("PUT", schedules+"a?accountId=acc", minutely, nil)
	s.ok("PUT", schedules+"a?accountId=acc", minutely, nil)
	s.refused("schedules", "PUT", schedules+"b?accountId=acc", minutely)
	s.ok("DELETE", schedules+"a?accountId=acc", "", nil)
	s.ok("PUT", schedules+"b?accountId=acc", minutely, nil)

	s.refused("bytes", "POST", stages, `{"init":{"envs":{"A":"`+strings.Repeat("x", 64<<10)+`"}}}`)
	s.submit(`{"id":"one","steps":[{}]}`)
	s.ok("POST", tasks, `{"id":"two","type":"x"}`, nil)
	s.submit(`{"id":"one","steps":[{}]}`) // the same again
	s.refused("works", "POST", stages, `{"steps":[{}]}`)
	s.refused("works", "POST", tasks, `{"type":"x"}`)
	s.refused("works", "POST", schedules+"b/trigger?accountId=acc", "")
	s.advanceUntil(time.Minute, func() bool {
		b, err := s.m.Schedule(account, "b")
		return err == nil && strings.Contains(b.LastError, "budget")
	})
	_, err := s.m.AbortTask(t.Context(), account, "two")
	require.NoError(t, err)
	_, err = s.m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: custom})
	require.NoError(t, err, "room is given back")
	_, err = s.m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: custom})
	require.ErrorIs(t, err, manager.ErrBudget)
	_, err = s.m.SubmitTask(t.Context(), otherAccount, manager.TaskRequest{Task: custom})
	require.NoError(t, err, "another account has its own")
}

// All accounts together stay in the total, and the end of a stage gives its part back.
func TestAllAccountsStayInTheTotal(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.TotalBudget = manager.Budget{Works: 3} })
	d := s.register("d", dockerTypes)
	s.submit(`{"id":"s","steps":[{"id":"a","data":{}}]}`)
	submit := func(account string) error {
		_, err := s.m.SubmitTask(t.Context(), account, manager.TaskRequest{Task: custom})
		return err
	}
	require.NoError(t, submit(account))
	require.NoError(t, submit(otherAccount))
	require.ErrorContains(t, submit(otherAccount), "works of all accounts")
	s.pass(d, initTask, succeeded)
	s.pass(d, executeTask, succeeded)
	s.pass(d, cleanupTask, succeeded)
	require.Equal(t, api.Success, s.ended("s").Status)
	require.NoError(t, submit(otherAccount))
}

// Held calls and event streams are bounded. A delegate's poll beyond the bound is
// answered at once, so that the delegate gets its work.
func TestHeldCallsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget = manager.Budget{Holds: 1, Streams: 1} })
	d := s.register("d", []string{"custom"})
	s.ok("POST", "/api/tasks?accountId=acc", `{"id":"t","type":"custom"}`, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var held sync.WaitGroup
	held.Go(func() { _, _ = s.do(ctx, "GET", "/api/tasks/t?accountId=acc&wait=60", "") })
	// A second call that competes for the hold would keep it for a time after its client has gone. The call below would then
	// be held, and not end.
	s.waits(1)
	s.refused("holds", "POST", "/api/tasks?accountId=acc", `{"type":"custom","sync":true}`)
	poll := s.call("GET", "/api/agent/delegates/"+d+"/task-events?accountId=acc&wait=60", "")
	assert.Equal(t, 200, poll.status)
	s.take(d, "custom")
	poll = s.call("GET", "/api/agent/delegates/"+d+"/task-events?accountId=acc&wait=60&since="+poll.header.Get("Dlite-Cursor"), "")
	for poll.header.Get("Dlite-Cursor") != "" { // the acquisition was news
		poll = s.call("GET", "/api/agent/delegates/"+d+"/task-events?accountId=acc&wait=60&since="+poll.header.Get("Dlite-Cursor"), "")
	}
	assert.Equal(t, 200, poll.status, "without the header the client pauses before its next poll")

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/events?accountId=acc", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.token)
	stream, err := s.http.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, stream.StatusCode)
	s.refused("streams", "GET", "/api/events?accountId=acc", "")
	cancel()
	held.Wait()
	_, _ = bufio.NewReader(stream.Body).ReadByte()
	require.NoError(t, stream.Body.Close())
}

// A body is booked before it is read: many large bodies at once do not fill the memory.
func TestLargeBodiesAreBookedBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.AccountBudget = manager.Budget{Bytes: 8 << 20} })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	post := func(ctx context.Context, length int64, body *strings.Reader) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/stages?accountId=acc", nil)
		if err != nil {
			return 0, err
		}
		req.Body, req.ContentLength = http.NoBody, length
		if body != nil {
			req.Body = &slow{body, ctx}
		}
		req.Header.Set("Authorization", "Bearer "+s.token)
		resp, err := s.http.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	var held sync.WaitGroup
	held.Go(func() {
		for ctx.Err() == nil { // the call below may come first
			_, _ = post(ctx, 6<<20, strings.NewReader(`{"id":"`+strings.Repeat("x", 8<<10))) // sends nothing more
		}
	})
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it may come before the other one
		defer cancel()
		status, err := post(ctx, 4<<20, strings.NewReader(strings.Repeat("x", 8<<10)))
		return err == nil && status == 429
	}, 5*time.Second, 5*time.Millisecond)
	s.submit(`{"steps":[{}]}`) // small ones pass
	large := `{"init":{"envs":{"A":"` + strings.Repeat("x", 3<<19) + `"}}}`
	for i := range 3 { // one after the other
		assert.Equal(t, 202, s.call("POST", "/api/stages?accountId=acc", large).status, fmt.Sprint(i))
	}
	cancel()
	held.Wait()
}

// slow is a body that sends a text and then nothing until its context ends.
type slow struct {
	*strings.Reader
	ctx context.Context // an io.Reader is given none
}

func (s *slow) Read(b []byte) (int, error) {
	if s.Len() > 0 {
		return s.Reader.Read(b)
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func (s *slow) Close() error { return nil }
