package poller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// after lets time pass in a bubble and waits until all goroutines are blocked.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// P5: the idle period is a time without tasks. Polls that list nothing do not
// prolong it; a task does.
func TestTheIdlePeriodEndsDuringPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		m := &script{onPoll: func(context.Context, client.PollQuery) (*client.Pending, error) {
			p := &client.Pending{}
			if time.Since(begun) > 5*time.Second {
				p.Events = []task.Event{{TaskID: "late", TaskType: executeTask}}
			}
			return p, nil
		}}
		_, stop, over := m.polling(t, router.RouteMap{executeTask: echo},
			poller.WithIdleWait(10*time.Second), poller.WithGrace(time.Hour))
		stop()
		require.NoError(t, <-over)
		assert.Greater(t, time.Since(begun), 15*time.Second)
		assert.Less(t, time.Since(begun), 20*time.Second)
		assert.Equal(t, []string{"late"}, m.acquired)
	})
}

// P6: refused tasks at the head of the list do not delay the tasks behind them.
func TestRefusedTasksKeepNoOthersWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var events []task.Event
		for i := range 100 {
			events = append(events, task.Event{TaskID: fmt.Sprint("no", i), TaskType: "echo"})
		}
		m := &script{onPoll: lists(append(events, task.Event{TaskID: "yes", TaskType: "echo"})...)}
		p, stop, over := m.polling(t, router.RouteMap{"echo": echo}, poller.WithFilter(func(e task.Event) error {
			if strings.HasPrefix(e.TaskID, "no") {
				return errors.New("not ours")
			}
			return nil
		}))
		assert.Equal(t, []string{"yes"}, m.acquired, "at once")
		after(10 * time.Second)
		assert.EqualValues(t, 100, p.Stats().Refused["filter"])
		stop()
		require.NoError(t, <-over)
	})
}

// P4, P6: a filter that panics refuses. It does not end the delegate.
func TestAFilterThatPanicsRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: "echo"})}
		p, stop, over := m.polling(t, router.RouteMap{"echo": echo}, poller.WithFilter(func(task.Event) error { panic("no filter") }))
		assert.EqualValues(t, 1, p.Stats().Refused["filter"])
		stop()
		require.NoError(t, <-over)
		assert.Empty(t, m.acquired)
	})
}

// C3, Q1: a pending delivery occupies neither an executor nor a slot.
func TestAnAnswerUnderWayHoldsNoSlot(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(context.Context, task.Event) (*task.Task, error){
		"of a handler": nil,
		"of a task that could not be read": func(context.Context, task.Event) (*task.Task, error) {
			return nil, &client.Error{Status: 200, Err: client.ErrMalformed}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				slots := capacity.NewSlots(1)
				taken := make(chan struct{})
				m := &script{onAcquire: acquire, onPoll: lists(task.Event{TaskID: "one", TaskType: initTask})}
				m.onRespond = func(ctx context.Context, _ *task.Response) error {
					select {
					case <-taken:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				_, stop, over := m.polling(t, router.RouteMap{initTask: echo}, poller.WithSlots(slots))
				assert.Len(t, m.acquired, 1)
				assert.Zero(t, slots.Used())
				close(taken)
				stop()
				require.NoError(t, <-over)
				assert.Len(t, m.answers, 1)
			})
		})
	}
}

// C3, P5: a cancelled task is answered, also if its handler stops slowly or does
// not return for long.
func TestCancelledTaskIsAnsweredWhenItsHandlerStops(t *testing.T) {
	t.Parallel()
	for name, overrun := range map[string]time.Duration{"by the handler": time.Hour, "by the poller": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: executeTask})}
				_, stop, over := m.polling(t, router.RouteMap{executeTask: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					<-time.After(20 * time.Second)
					task.WriteError(w, context.Cause(r.Context()))
				})}, poller.WithGrace(time.Second), poller.WithOverrun(overrun))
				stop()
				require.ErrorIs(t, <-over, poller.ErrGraceExceeded)
				require.Len(t, m.answers, 1)
				assert.Contains(t, m.answers[0].Error, "grace")
			})
		})
	}
}

// C3, P5: after the grace, a manager that is away delays the end of Poll only a
// little.
func TestAbsentManagerDoesNotDelayTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: executeTask})}
		m.onRespond = func(ctx context.Context, _ *task.Response) error {
			<-ctx.Done()
			return &client.Error{Err: ctx.Err()}
		}
		p, stop, over := m.polling(t, router.RouteMap{executeTask: echo}, poller.WithGrace(time.Minute))
		begun := time.Now()
		stop()
		require.ErrorIs(t, <-over, poller.ErrGraceExceeded)
		assert.Greater(t, time.Since(begun), time.Minute)
		assert.Less(t, time.Since(begun), 90*time.Second)
		assert.EqualValues(t, 1, p.Stats().Undelivered)
	})
}

// P5: the end of Poll's context bounds a drain that Shutdown has begun.
func TestTheGraceAlsoBoundsAShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: executeTask})}
		p, stop, over := m.polling(t, router.RouteMap{executeTask: newGate()}, poller.WithGrace(time.Minute))
		begun := time.Now()
		go func() { _ = p.Shutdown(context.WithoutCancel(t.Context())) }()
		after(time.Hour)
		assert.Empty(t, over, "Shutdown's own context does not end")
		stop()
		require.ErrorIs(t, <-over, poller.ErrGraceExceeded)
		assert.Equal(t, time.Hour+time.Minute, time.Since(begun))
	})
}

// C4: a manager that registers the delegate and still refuses it is asked less and
// less often, and hears of a drain.
func TestRegistrationsThatDoNotHelpBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: func(context.Context, client.PollQuery) (*client.Pending, error) {
			return nil, &client.Error{Status: 403}
		}}
		g := newGate()
		slots := capacity.NewSlots(1)
		slot, _ := slots.Take() // a stage is open: the drain continues
		_, stop, over := m.polling(t, router.RouteMap{executeTask: g}, poller.WithSlots(slots), poller.WithGrace(poller.Unbounded))
		after(10 * time.Minute)
		n := len(m.registrations)
		assert.Greater(t, n, 10)
		assert.Less(t, n, 50)
		assert.False(t, m.registrations[n-1].Draining)
		stop()
		after(time.Minute)
		require.Greater(t, len(m.registrations), n)
		assert.True(t, m.registrations[len(m.registrations)-1].Draining)
		slot.Release()
		require.NoError(t, <-over)
	})
}

// C7: a manager that claims to hold polls and answers them at once, without news,
// is not polled without a pause.
func TestManagerThatDoesNotHoldIsPolledWithPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: func(context.Context, client.PollQuery) (*client.Pending, error) {
			return &client.Pending{Held: true, Events: []task.Event{{TaskID: "never", TaskType: "echo"}}}, nil
		}}
		m.onAcquire = func(context.Context, task.Event) (*task.Task, error) { return nil, nil }
		_, stop, over := m.polling(t, router.RouteMap{"echo": echo})
		after(time.Minute)
		assert.Less(t, m.polls, 200)
		assert.Less(t, len(m.acquired), 70)
		stop()
		require.NoError(t, <-over)
	})
}

// C3, C4: an answer that a manager refuses because it has lost the delegate waits
// for the new registration.
func TestAnAnswerSurvivesTheLossOfTheDelegate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Bool
		back := make(chan struct{})
		m := &script{}
		known := func() error {
			if lost.Load() {
				return &client.Error{Status: 404}
			}
			return nil
		}
		m.onRegister = func() error {
			<-back
			lost.Store(false)
			return nil
		}
		m.onPoll = func(context.Context, client.PollQuery) (*client.Pending, error) {
			return &client.Pending{Events: []task.Event{{TaskID: "one", TaskType: executeTask}}}, known()
		}
		m.onRespond = func(context.Context, *task.Response) error { return known() }
		g := newGate()
		_, stop, over := m.polling(t, router.RouteMap{executeTask: g})
		lost.Store(true)
		after(2 * time.Second)
		close(g.let)
		after(time.Second)
		assert.Empty(t, m.answers)
		close(back)
		after(time.Minute)
		assert.Len(t, m.answers, 1)
		stop()
		require.NoError(t, <-over)
	})
}
