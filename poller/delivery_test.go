package poller_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// T7: an abort that comes during the acquire takes effect, and the answer has the
// reason also if the handler does not mention it.
func TestAnAbortDuringTheAcquireTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: func(context.Context, client.PollQuery) (*client.Pending, error) {
			return &client.Pending{Events: []task.Event{{TaskID: "one", TaskType: executeTask}}, Aborted: []string{"one"}}, nil
		}}
		m.onAcquire = func(_ context.Context, e task.Event) (*task.Task, error) {
			<-time.After(5 * time.Second) // some polls later
			return &task.Task{ID: e.TaskID, Type: e.TaskType}, nil
		}
		_, stop, over := m.polling(t, router.RouteMap{executeTask: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			http.Error(w, "stopped", http.StatusInternalServerError)
		})})
		after(10 * time.Second)
		require.Len(t, m.answers, 1)
		assert.Equal(t, task.Failed, m.answers[0].Code)
		assert.Contains(t, m.answers[0].Error, "aborted")
		stop()
		require.NoError(t, <-over)
	})
}

// P1: members that the manager leaves out of a task are taken from its event.
func TestATaskIsCompletedByItsEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := task.Event{TaskID: "one", TaskType: "echo", Account: "acct"}
		m := &script{onPoll: lists(e)}
		m.onAcquire = func(context.Context, task.Event) (*task.Task, error) { return &task.Task{}, nil }
		var got *task.Task
		_, stop, over := m.polling(t, router.RouteMap{"echo": task.HandlerFunc(func(_ context.Context, r *task.Request[any]) (any, error) {
			got = r.Task
			return nil, nil
		})})
		stop()
		require.NoError(t, <-over)
		require.NotNil(t, got)
		assert.Equal(t, e, task.Event{TaskID: got.ID, TaskType: got.Type, Account: got.Account})
	})
}

// C4: after a call that is refused for its token the delegate registers again, and
// the task is not lost.
func TestRefusedTokenLeadsToARegistration(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"acquire", "respond"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: "echo"})}
				refuse := func() error {
					m.mu.Lock()
					defer m.mu.Unlock()
					if len(m.registrations) == 0 {
						return &client.Error{Status: 401}
					}
					return nil
				}
				if call == "acquire" {
					m.onAcquire = func(_ context.Context, e task.Event) (*task.Task, error) {
						return &task.Task{ID: e.TaskID, Type: e.TaskType}, refuse()
					}
				} else {
					m.onRespond = func(context.Context, *task.Response) error { return refuse() }
				}
				_, stop, over := m.polling(t, router.RouteMap{"echo": echo})
				after(time.Minute)
				stop()
				require.NoError(t, <-over)
				assert.Len(t, m.registrations, 1)
				assert.Len(t, m.answers, 1)
			})
		})
	}
}

// C3, C4: the answer goes to the delegate's new id if the manager has forgotten
// the previous one.
func TestAnAnswerFollowsTheDelegatesNewID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{id: "d2"}
		m.onPoll = func(context.Context, client.PollQuery) (*client.Pending, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.polls == 2 {
				return nil, &client.Error{Status: 404}
			}
			return &client.Pending{Cursor: "c", Events: []task.Event{{TaskID: "one", TaskType: executeTask}}}, nil
		}
		attempts := 0
		m.onRespond = func(context.Context, *task.Response) error {
			if attempts++; attempts == 1 {
				return &client.Error{Status: 404}
			}
			return nil
		}
		g := newGate()
		_, stop, over := m.polling(t, router.RouteMap{executeTask: g})
		after(10 * time.Second)
		close(g.let)
		stop()
		require.NoError(t, <-over)
		assert.Equal(t, []string{"d2"}, m.answeredAs)
		assert.Equal(t, []string{"", "c", "", "c"}, m.since[:4], "a cursor belongs to one registration")
	})
}

// C6: an answer that is too large is replaced by a failure that says so.
func TestAnAnswerThatIsTooLargeBecomesAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{onPoll: lists(task.Event{TaskID: "one", TaskType: "echo"})}
		m.onAcquire = func(context.Context, task.Event) (*task.Task, error) {
			return &task.Task{Data: json.RawMessage(`"much"`)}, nil
		}
		m.onRespond = func(_ context.Context, r *task.Response) error {
			if len(r.Data) > 0 {
				return &client.Error{Err: client.ErrTooLarge}
			}
			return nil
		}
		_, stop, over := m.polling(t, router.RouteMap{"echo": echo})
		stop()
		require.NoError(t, <-over)
		require.Len(t, m.answers, 1)
		assert.Equal(t, task.Failed, m.answers[0].Code)
		assert.Contains(t, m.answers[0].Error, "too large")
	})
}

// C7: a plain manager is polled at once after a task, and at the interval while a
// pending task cannot start.
func TestAPlainManagerIsPolledAtOnceAfterATask(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"nothing is left": false, "something is left": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				events := []task.Event{{TaskID: "one", TaskType: "echo"}}
				if stays {
					events = append(events, task.Event{TaskID: "busy", TaskType: executeTask}, task.Event{TaskID: "stays", TaskType: executeTask})
				}
				m := &script{onPoll: lists(events...)}
				_, stop, over := m.polling(t, router.RouteMap{"echo": echo, executeTask: newGate()})
				want := 2
				if stays {
					want = 1
				}
				m.mu.Lock()
				assert.Equal(t, want, m.polls)
				m.mu.Unlock()
				stop()
				if err := <-over; err != nil {
					t.Log(err) // this test is not about the handler that hangs
				}
			})
		})
	}
}

// C7: a task that could not be acquired is tried again, also while the manager
// holds the poll because it has nothing new.
func TestFailedAcquireIsRepeatedDuringAHeldPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &script{}
		m.onPoll = func(ctx context.Context, q client.PollQuery) (*client.Pending, error) {
			if q.Since != "" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &client.Pending{Held: true, Cursor: "c", Events: []task.Event{{TaskID: "one", TaskType: "echo"}}}, nil
		}
		attempts := 0
		m.onAcquire = func(_ context.Context, e task.Event) (*task.Task, error) {
			if attempts++; attempts == 1 {
				return nil, &client.Error{Status: 503}
			}
			return &task.Task{ID: e.TaskID, Type: e.TaskType}, nil
		}
		_, stop, over := m.polling(t, router.RouteMap{"echo": echo})
		after(5 * time.Second)
		stop()
		require.NoError(t, <-over)
		assert.Len(t, m.answers, 1)
	})
}
