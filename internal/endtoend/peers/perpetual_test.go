package peers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// perpetualRig is a manager with delegates that have handlers of perpetual tasks.
type perpetualRig struct {
	t   *testing.T
	m   *manager.Manager
	url string
}

func newPerpetualRig(t *testing.T, lease time.Duration) *perpetualRig {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}, PerpetualLease: lease})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		srv.Close()
	})
	return &perpetualRig{t, m, srv.URL}
}

// delegate starts a delegate. The test stops it with Shutdown.
func (r *perpetualRig) delegate(name string, protocol client.Protocol, opts ...poller.Option) *poller.Poller {
	r.t.Helper()
	c, err := client.New(r.url, benchAccount, benchSecret, client.WithProtocol(protocol))
	require.NoError(r.t, err)
	p := poller.New(c, router.New(router.RouteMap{}), append(opts, poller.WithName(name))...)
	over := make(chan error, 1)
	go func() { over <- p.Run(context.WithoutCancel(r.t.Context()), 1) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		assert.NoError(r.t, p.Shutdown(ctx))
		assert.NoError(r.t, <-over)
		c.CloseIdleConnections()
	})
	return p
}

func (r *perpetualRig) set(p api.PerpetualTask) api.PerpetualTask {
	r.t.Helper()
	out, err := r.m.SetPerpetual(r.t.Context(), benchAccount, p)
	require.NoError(r.t, err)
	return out
}

// until waits until a task is as the test expects.
func (r *perpetualRig) until(id string, ok func(*api.PerpetualTask) bool) (last api.PerpetualTask) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		var err error
		last, err = r.m.Perpetual(benchAccount, id)
		assert.NoError(c, err)
		assert.True(c, ok(&last), "%+v", last)
	}, 60*time.Second, 10*time.Millisecond)
	return last
}

// counting returns a handler whose state is the number of its runs, which is its event too.
func counting() task.PerpetualFunc {
	return func(_ context.Context, run *task.PerpetualRun) (*task.PerpetualResult, error) {
		n := 0
		if len(run.State) > 0 {
			if err := json.Unmarshal(run.State, &n); err != nil {
				return nil, err
			}
		}
		text := json.RawMessage(fmt.Sprint(n + 1))
		return &task.PerpetualResult{State: text, Events: []json.RawMessage{text}}, nil
	}
}

// G1: a task runs at its interval, with its state, in both protocols; its events arrive in
// their order; a drain hands it to the other delegate at once, with the state.
func TestAPerpetualTaskMovesWithItsState(t *testing.T) {
	t.Parallel()
	for _, protocol := range []client.Protocol{client.V1, client.V2} {
		r := newPerpetualRig(t, time.Hour) // no lease ends in this test
		first := r.delegate("first", protocol, poller.WithPerpetual("count", counting()))
		r.set(api.PerpetualTask{ID: "c", Type: "count", IntervalMS: 1000})
		r.until("c", func(p *api.PerpetualTask) bool { return p.Runs >= 1 && p.DelegateName == "first" })
		r.delegate("second", protocol, poller.WithPerpetual("count", counting()))
		drained := make(chan error, 1)
		go func() { drained <- first.Shutdown(within(t)) }()
		moved := r.until("c", func(p *api.PerpetualTask) bool { return p.DelegateName == "second" && p.Runs >= 2 })
		require.NoError(t, receive(t, drained))
		assert.Equal(t, fmt.Sprint(moved.Runs), string(moved.State))

		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		err := r.m.ConsumePerpetual(ctx, "count", func(_ context.Context, events []manager.PerpetualEvent) error {
			for _, e := range events {
				got = append(got, string(e.Data))
			}
			if len(got) >= 2 {
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, []string{"1", "2"}, got[:2])
	}
}

// G1: runs that change nothing are reported together, also if they follow each other faster than reports.
func TestRunsWithoutChangesAreReported(t *testing.T) {
	t.Parallel()
	r := newPerpetualRig(t, 9*time.Second) // such runs wait for a third of it
	r.delegate("d", client.V1, poller.WithPerpetual("idle", task.PerpetualFunc(func(context.Context, *task.PerpetualRun) (*task.PerpetualResult, error) {
		return nil, nil //nolint:nilnil // a result that changes nothing
	})))
	r.set(api.PerpetualTask{ID: "i", Type: "idle", IntervalMS: 1000})
	r.until("i", func(p *api.PerpetualTask) bool { return p.Runs >= 3 })
}

// G1: a failed run backs off and keeps the state, a panic is a failed run, and a person
// pauses the task with a note, resumes it, and asks for a run.
func TestAPerpetualTaskFailsAndIsPaused(t *testing.T) {
	t.Parallel()
	r := newPerpetualRig(t, time.Hour)
	var mu sync.Mutex
	mode := "panic"
	r.delegate("d", client.V1, poller.WithPerpetual("x", task.PerpetualFunc(func(ctx context.Context, run *task.PerpetualRun) (*task.PerpetualResult, error) {
		mu.Lock()
		now := mode
		mu.Unlock()
		switch now {
		case "panic":
			panic("visible")
		case "fail":
			return nil, errors.New("no luck")
		case "hang":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &task.PerpetualResult{State: json.RawMessage(`"done"`)}, nil
	})))
	become := func(m string) {
		mu.Lock()
		mode = m
		mu.Unlock()
	}
	r.set(api.PerpetualTask{ID: "x", Type: "x", IntervalMS: 3_600_000})
	r.until("x", func(p *api.PerpetualTask) bool {
		return p.Failures == 1 && p.LastError == "the handler panicked: visible"
	})
	become("fail")
	require.NoError(t, r.m.RunPerpetual(t.Context(), benchAccount, "x"))
	failed := r.until("x", func(p *api.PerpetualTask) bool { return p.Failures == 2 && p.LastError == "no luck" })
	assert.WithinDuration(t, failed.LastErrorAt.Add(10*time.Second), failed.NextRun, 2*time.Second, "the pause doubles")
	become("hang")
	require.NoError(t, r.m.RunPerpetual(t.Context(), benchAccount, "x"))
	require.NoError(t, r.m.PausePerpetual(t.Context(), benchAccount, "x", "by hand"))
	paused := r.until("x", func(p *api.PerpetualTask) bool { return p.DelegateID == "" })
	assert.True(t, paused.Paused)
	assert.Equal(t, "by hand", paused.Note)
	assert.Equal(t, uint64(2), paused.Runs, "a cancelled run does not count")
	require.Error(t, r.m.RunPerpetual(t.Context(), benchAccount, "x"))
	become("work")
	require.NoError(t, r.m.ResumePerpetual(t.Context(), benchAccount, "x"))
	done := r.until("x", func(p *api.PerpetualTask) bool { return p.Failures == 0 && p.Runs == 3 })
	assert.Equal(t, `"done"`, string(done.State))
	assert.Greater(t, done.Token, failed.Token)
	require.NoError(t, r.m.DeletePerpetual(t.Context(), benchAccount, "x"))
	_, err := r.m.Perpetual(benchAccount, "x")
	require.ErrorIs(t, err, manager.ErrNotFound)
}
