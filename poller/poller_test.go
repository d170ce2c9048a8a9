package poller_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Task types of three kinds; "echo" is a standalone type.
const (
	initTask    = "local_init"
	executeTask = "local_execute"
	cleanupTask = "local_cleanup"
)

// delegate is a poller under test and the manager it talks to.
type delegate struct {
	*poller.Poller
	srv  *clientfaults.Server
	id   string
	stop context.CancelFunc
	over chan struct{}
	err  error
}

// start runs a delegate until the test ends. The interval is long, so only a held
// poll makes tasks start quickly.
func start(t *testing.T, srv *clientfaults.Server, routes router.RouteMap, opts ...poller.Option) *delegate {
	t.Helper()
	return startEvery(t, srv, time.Minute, 2, routes, opts...)
}

func startEvery(t *testing.T, srv *clientfaults.Server, every time.Duration, executors int, routes router.RouteMap, opts ...poller.Option) *delegate {
	t.Helper()
	d := &delegate{srv: srv, over: make(chan struct{})}
	d.Poller = poller.New(newClient(t, srv), router.New(routes), opts...)
	info, err := d.Register(t.Context())
	require.NoError(t, err)
	d.id = info.ID
	var ctx context.Context
	ctx, d.stop = context.WithCancel(context.Background())
	go func() {
		defer close(d.over)
		d.err = d.Poll(ctx, executors, info.ID, every)
	}()
	t.Cleanup(func() { d.stop(); <-d.over })
	return d
}

func newClient(t *testing.T, srv *clientfaults.Server) *client.HTTP {
	t.Helper()
	c, err := client.New(srv.URL, srv.Account, srv.Secret,
		client.WithRetries(client.Retries{MinWait: time.Millisecond, MaxWait: 10 * time.Millisecond}))
	require.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func server(t *testing.T) *clientfaults.Server {
	t.Helper()
	srv := clientfaults.NewServer(clienttest.Config{})
	t.Cleanup(srv.Close)
	return srv
}

// within bounds events that must happen soon.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wait(t *testing.T, c *clienttest.Submission) *clienttest.Response {
	t.Helper()
	r, err := c.Wait(within(t))
	require.NoError(t, err)
	return r
}

func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-within(t).Done():
		require.FailNow(t, "nothing arrived in time")
	}
	return v
}

// echo answers with the task's data.
var echo = task.HandlerFunc(func(_ context.Context, r *task.Request[json.RawMessage]) (json.RawMessage, error) {
	return r.Data, nil
})

// gate is a handler that waits until let is closed or its context ends.
type gate struct {
	entered chan *task.Task
	let     chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan *task.Task, 100), let: make(chan struct{})} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, _ := task.FromContext(r.Context())
	g.entered <- t
	select {
	case <-g.let:
		task.WriteJSON(w, "through", 200)
	case <-r.Context().Done():
		task.WriteError(w, context.Cause(r.Context()))
	}
}

func submit(srv *clientfaults.Server, typ, data string) *clienttest.Submission {
	return srv.Submit(&task.Task{Type: typ, Data: json.RawMessage(data)})
}

// P1: register, poll, acquire, execute, respond.
func TestATaskTravelsFromTheManagerToItsHandlerAndBack(t *testing.T) {
	t.Parallel()
	srv := server(t)
	start(t, srv, router.RouteMap{"echo": echo})
	r := wait(t, submit(srv, "echo", `{"n":12345678901234567890}`))
	assert.Equal(t, task.OK, r.Code)
	assert.Equal(t, `{"n":12345678901234567890}`, string(r.Data))
}

// P1: no goroutine outlives Poll (TestMain checks it), and the delegate
// unregisters.
func TestPollReturnsWhenItsContextEndsAndUnregisters(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{"echo": echo})
	wait(t, submit(srv, "echo", `1`))
	d.stop()
	receive(t, d.over)
	require.NoError(t, d.err)
	assert.Equal(t, 1, srv.Count("unregister"))
}

// P4: every failure of a handler reaches the manager as a failure with a reason,
// and the delegate continues.
func TestAHandlerThatFailsInAnyWayIsAnsweredFailed(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, router.RouteMap{
		"panic":  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("out of cheese") }),
		"status": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no cheese", 500) }),
		"silent": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"typed":  task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return nil, errors.New("bad cheese") }),
		"elsewho": task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) {
			return nil, task.Errorf(task.RetryOnOtherDelegate, "not here")
		}),
		"echo": echo,
	})
	for typ, want := range map[string]string{
		"panic": "out of cheese", "status": "no cheese", "silent": "no answer", "typed": "bad cheese", "unrouted": "unrouted",
	} {
		r := wait(t, srv.SubmitTo(d.id, &task.Task{Type: typ, Data: json.RawMessage(`{}`)}))
		assert.Equal(t, task.Failed, r.Code, typ)
		assert.Contains(t, r.Error+string(r.Data), want, typ)
	}
	assert.Equal(t, task.RetryOnOtherDelegate, wait(t, submit(srv, "elsewho", `{}`)).Code)
	assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `{}`)).Code)
}

// P4: the time-out of a task is enforced, also for a handler that ignores its
// context.
func TestATimeOutIsAnsweredAlsoForAHandlerThatIgnoresIt(t *testing.T) {
	t.Parallel()
	srv := server(t)
	deaf := make(chan struct{})
	g := newGate()
	start(t, srv, router.RouteMap{
		"polite": g,
		"deaf":   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-deaf }),
	}, poller.WithOverrun(10*time.Millisecond))
	t.Cleanup(func() { close(deaf) }) // before the poller's end, which waits for it
	for _, typ := range []string{"polite", "deaf"} {
		sub := srv.Submit(&task.Task{Type: typ, Timeout: 50, RunnerResponse: true})
		assert.Equal(t, task.Timeout, wait(t, sub).Code, typ)
	}
}

// P3: while all executors of steps are occupied, cleanups and standalone tasks run
// at once, and further steps stay with the manager.
func TestRunningStepsDelayNoOtherKind(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := start(t, srv, router.RouteMap{executeTask: g, cleanupTask: echo, "echo": echo, initTask: echo})
	for range 3 {
		submit(srv, executeTask, `{}`)
	}
	receive(t, g.entered)
	receive(t, g.entered)
	assert.Equal(t, task.OK, wait(t, submit(srv, cleanupTask, `{}`)).Code)
	assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `{}`)).Code)
	assert.Equal(t, task.OK, wait(t, submit(srv, initTask, `{}`)).Code)
	assert.Empty(t, g.entered, "two executors run two steps")
	assert.Equal(t, 2, d.Stats().Running["execute"])
	close(g.let)
	receive(t, g.entered)
}

// P3, Q1: an init is acquired when it has a slot, not before. A slot that a
// transaction keeps is free again when the transaction releases it.
func TestAnInitWaitsWithTheManagerForASlot(t *testing.T) {
	t.Parallel()
	srv := server(t)
	slots := capacity.NewSlots(1)
	kept := make(chan *capacity.Slot, 2)
	d := start(t, srv, router.RouteMap{initTask: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, ok := capacity.FromContext(r.Context())
		if !ok || !s.Keep() {
			panic("no slot")
		}
		kept <- s
		task.WriteJSON(w, nil, 200)
	})}, poller.WithSlots(slots))
	first, second := submit(srv, initTask, `1`), submit(srv, initTask, `2`)
	assert.Equal(t, task.OK, wait(t, first).Code)
	require.Eventually(t, func() bool { return d.Stats().Refused["capacity"] == 1 }, 20*time.Second, time.Millisecond)
	assert.EqualValues(t, 1, d.Stats().Acquired)
	receive(t, kept).Release()
	assert.Equal(t, task.OK, wait(t, second).Code)
	receive(t, kept).Release()
	assert.Zero(t, slots.Used())
	assert.Equal(t, 1, srv.Delegates()[0].Capacity, "the manager was told")
}

// Q1: an init whose handler does not keep the slot releases it.
func TestSlotThatNoTransactionKeepsIsReleased(t *testing.T) {
	t.Parallel()
	srv := server(t)
	slots := capacity.NewSlots(1)
	start(t, srv, router.RouteMap{initTask: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("early") })},
		poller.WithSlots(slots))
	for range 3 {
		assert.Equal(t, task.Failed, wait(t, submit(srv, initTask, `{}`)).Code)
	}
	require.Eventually(t, func() bool { return slots.Used() == 0 }, 20*time.Second, time.Millisecond)
}

// C3: an answer that the manager does not accept is retried and occupies no
// executor meanwhile.
func TestAnAnswerThatIsRetriedHoldsNoExecutor(t *testing.T) {
	t.Parallel()
	srv := server(t)
	stuck := srv.Submit(&task.Task{ID: "stuck", Type: executeTask, Data: json.RawMessage(`1`)})
	away := srv.Inject(clientfaults.Fault{Call: "respond", TaskID: "stuck", Kind: clientfaults.AnswerStatus, Status: 503})
	startEvery(t, srv, time.Minute, 1, router.RouteMap{executeTask: echo})
	require.NoError(t, away.Wait(within(t), 2))
	for range 3 {
		assert.Equal(t, task.OK, wait(t, submit(srv, executeTask, `2`)).Code)
	}
	away.Remove()
	assert.Equal(t, task.OK, wait(t, stuck).Code)
}

// C4: if the manager has forgotten the delegate, or refuses its token for a while,
// the delegate registers again and continues.
func TestADelegateThatTheManagerForgotRegistersAgain(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]clientfaults.Fault{
		"poll says 404":      {Call: "poll", Kind: clientfaults.AnswerStatus, Status: 404},
		"poll says 401":      {Call: "poll", Kind: clientfaults.AnswerStatus, Status: 401},
		"heartbeat says 404": {Call: "heartbeat", Kind: clientfaults.AnswerStatus, Status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := server(t)
			fault := srv.Inject(f)
			d := start(t, srv, router.RouteMap{"echo": echo}, poller.WithHeartbeat(20*time.Millisecond))
			require.Eventually(t, func() bool { return d.Stats().Registrations >= 1 }, 20*time.Second, time.Millisecond)
			fault.Remove()
			assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `1`)).Code)
			assert.Less(t, d.Stats().Registrations, int64(5), "with back-off, not in a spin")
		})
	}
}

// P7: heartbeats continue while all executors are occupied.
func TestHeartbeatsContinueWhileEveryExecutorIsBusy(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	d := startEvery(t, srv, time.Minute, 1, router.RouteMap{executeTask: g}, poller.WithHeartbeat(5*time.Millisecond))
	submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	before := d.Stats().Heartbeats
	require.Eventually(t, func() bool { return d.Stats().Heartbeats > before+5 }, 20*time.Second, time.Millisecond)
	close(g.let)
}

// P6: a task that the filter refuses stays with the manager and counts once. It is
// acquired when the filter accepts it later.
func TestAFilterLeavesTasksWithTheManager(t *testing.T) {
	t.Parallel()
	srv := server(t)
	open := make(chan struct{})
	d := startEvery(t, srv, 5*time.Millisecond, 2, router.RouteMap{"echo": echo}, poller.WithFilter(func(e task.Event) error {
		select {
		case <-open:
			return nil
		default:
			return errors.New("not now")
		}
	}))
	sub := submit(srv, "echo", `1`)
	require.Eventually(t, func() bool { return d.Stats().Refused["filter"] == 1 }, 20*time.Second, time.Millisecond)
	close(open)
	wait(t, sub)
	assert.EqualValues(t, 1, d.Stats().Refused["filter"])
}

// P6: a busy host takes no new stages and continues with the open ones.
func TestThresholdsRefuseOnlyInits(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := startEvery(t, srv, 5*time.Millisecond, 2, router.RouteMap{initTask: echo, executeTask: echo},
		poller.WithThresholds(&capacity.Thresholds{CPU: 80, Measure: func(context.Context) (capacity.Load, error) {
			return capacity.Load{CPU: 95}, nil
		}}))
	submit(srv, initTask, `1`)
	assert.Equal(t, task.OK, wait(t, submit(srv, executeTask, `1`)).Code)
	require.Eventually(t, func() bool { return d.Stats().Refused["thresholds"] == 1 }, 20*time.Second, time.Millisecond)
}

// T7: a task that the manager aborts ends, and its answer has the reason.
func TestAnAbortEndsTheTask(t *testing.T) {
	t.Parallel()
	srv := server(t)
	g := newGate()
	start(t, srv, router.RouteMap{executeTask: g})
	sub := submit(srv, executeTask, `{}`)
	receive(t, g.entered)
	srv.Abort(sub.ID)
	r := wait(t, sub)
	assert.Equal(t, task.Failed, r.Code)
	assert.Contains(t, r.Error+string(r.Data), "aborted")
}
