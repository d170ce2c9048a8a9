package poller_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stageRoutes open a stage that holds its slot until its cleanup.
func stageRoutes(execute http.Handler) router.RouteMap {
	var mu sync.Mutex
	var open []*capacity.Slot
	return router.RouteMap{
		initTask: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, _ := capacity.FromContext(r.Context())
			s.Keep()
			mu.Lock()
			open = append(open, s)
			mu.Unlock()
			task.WriteJSON(w, nil, 200)
		}),
		executeTask: execute,
		cleanupTask: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			s := open[0]
			open = open[1:]
			mu.Unlock()
			s.Release()
			task.WriteJSON(w, nil, 200)
		}),
		"echo": echo,
	}
}

// P5: a drain finishes the open stage, with its steps and its cleanup, and takes
// neither a new stage nor a standalone task.
func TestADrainFinishesOpenStagesAndTakesNoNewOnes(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := start(t, srv, stageRoutes(g), poller.WithSlots(capacity.NewSlots(5)), poller.WithGrace(poller.Unbounded))
	wait(t, submit(srv, initTask, `{}`))
	running := submit(srv, executeTask, `{}`)
	receive(t, g.entered)

	d.stop()
	late, alone := submit(srv, initTask, `{}`), submit(srv, "echo", `{}`)
	require.Eventually(t, func() bool { return d.Stats().Refused["draining"] == 2 }, 20*time.Second, time.Millisecond)
	close(g.let)
	assert.Equal(t, task.OK, wait(t, running).Code, "the running task is not cancelled")
	next := submit(srv, executeTask, `{}`)
	assert.Equal(t, task.OK, wait(t, next).Code, "the open stage continues")
	select {
	case <-d.over:
		require.Fail(t, "the stage is still open")
	default:
	}
	assert.Equal(t, task.OK, wait(t, submit(srv, cleanupTask, `{}`)).Code)
	receive(t, d.over)
	require.NoError(t, d.err)
	assert.Zero(t, late.Acquires())
	assert.Zero(t, alone.Acquires())
}

// P5: when the grace ends, running tasks are cancelled and still answered.
func TestEndOfTheGraceCancelsRunningTasks(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := start(t, srv, router.RouteMap{executeTask: g}, poller.WithGrace(10*time.Millisecond))
	sub := submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	d.stop()
	receive(t, d.over)
	require.ErrorIs(t, d.err, poller.ErrGraceExceeded)
	r := wait(t, sub)
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error+string(r.Data), "grace")
}

// P5: Shutdown drains as the end of Poll's context does. The end of Shutdown's
// context cancels, as a second signal does.
func TestShutdownDrainsAndItsContextIsTheGrace(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := start(t, srv, router.RouteMap{executeTask: g})
	submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	second, signal := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Shutdown(second) }()
	assert.Empty(t, done)
	signal()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	receive(t, d.over)
	require.ErrorIs(t, d.err, poller.ErrGraceExceeded)
	require.ErrorIs(t, d.Poll(t.Context(), 1, d.id, 0), poller.ErrShutdown)
	require.NoError(t, d.Shutdown(t.Context()))
}

// P5: a Shutdown with an ended context does not make Poll of an idle delegate
// fail.
func TestShutdownOfAnIdleDelegateIsNoFailure(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{"echo": echo})
	require.Eventually(t, func() bool { return d.Stats().Polls > 0 }, 20*time.Second, time.Millisecond)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Shutdown(over); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	receive(t, d.over)
	require.NoError(t, d.err)
}

// P5: the delegate reports a drain at once, not with the next heartbeat.
func TestDrainIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := start(t, srv, router.RouteMap{executeTask: g}, poller.WithHeartbeat(time.Hour), poller.WithGrace(poller.Unbounded))
	submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	d.stop()
	require.Eventually(t, func() bool { return srv.Delegates()[0].Registration.Draining }, 20*time.Second, time.Millisecond)
	close(g.let)
	receive(t, d.over)
}

// P5: after the last task a drain waits for the idle period, and takes the tasks
// that come within it.
func TestADrainWaitsForTheIdlePeriod(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{executeTask: echo}, poller.WithIdleWait(300*time.Millisecond))
	d.stop()
	assert.Equal(t, task.OK, wait(t, submit(srv, executeTask, `{}`)).Code)
	receive(t, d.over)
}

func TestPollRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	srv := server(t)
	c, err := client.New(srv.URL, srv.Account, srv.Secret)
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	p := poller.New(c, router.New(nil))
	require.ErrorContains(t, p.Poll(t.Context(), 0, "id", 0), "at least 1")
	require.ErrorContains(t, p.Poll(t.Context(), 1, "", 0), "Register")
	require.ErrorContains(t, p.Poll(t.Context(), 1, "id", -1), "negative")
	assert.Panics(t, func() { poller.New(nil, nil) })
}

// P1: only one Poll runs at a time. Another one can run after it has ended.
func TestPollCanRunAgainButNotTwiceAtOnce(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{"echo": echo})
	wait(t, submit(srv, "echo", `1`))
	require.EqualError(t, d.Poll(t.Context(), 1, d.id, 0), "the poller is polling already")
	d.stop()
	receive(t, d.over)
	ctx, stop := context.WithCancel(t.Context())
	again := make(chan error, 1)
	go func() { again <- d.Poll(ctx, 1, d.id, time.Minute) }()
	wait(t, submit(srv, "echo", `2`))
	stop()
	require.NoError(t, receive(t, again))
}

// P1: a poller that starts and stops at any moment, with running tasks and a
// manager that misbehaves, ends and leaves no goroutine.
func TestStartAndStopUnderStress(t *testing.T) {
	t.Parallel()
	srv := server(t)
	srv.Inject(clientfaults.Fault{Kind: clientfaults.DropResponse, Probability: 0.1})
	c, err := client.New(srv.URL, srv.Account, srv.Secret,
		client.WithRetries(client.Retries{MinWait: time.Millisecond, MaxWait: time.Millisecond}))
	require.NoError(t, err)
	defer c.CloseIdleConnections()
	p := poller.New(c, router.New(router.RouteMap{"echo": echo}), poller.WithHeartbeat(time.Millisecond))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	for i := range 50 {
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- p.Poll(ctx, 4, info.ID, time.Millisecond) }()
		sub := submit(srv, "echo", `1`)
		if i%2 == 0 {
			wait(t, sub)
		}
		stop()
		require.NoError(t, receive(t, over))
	}
}
