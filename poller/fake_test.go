package poller_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// script is a client whose manager is a few functions. It is for tests that depend
// on time: it works in a bubble of synctest, where a real connection does not.
// Hooks that are nil succeed at once, with an empty list and a task as its event
// announces it.
type script struct {
	onRegister func() error
	onPoll     func(ctx context.Context, q client.PollQuery) (*client.Pending, error)
	onAcquire  func(ctx context.Context, e task.Event) (*task.Task, error)
	onRespond  func(ctx context.Context, r *task.Response) error

	mu            sync.Mutex
	id            string // the id that Register answers; empty is d1
	polls         int
	since         []string
	answeredAs    []string
	registrations []*client.Registration
	acquired      []string
	answers       []*task.Response
}

func (s *script) Register(_ context.Context, r *client.Registration) (*client.Delegate, error) {
	s.mu.Lock()
	s.registrations = append(s.registrations, r)
	s.mu.Unlock()
	if s.onRegister != nil {
		if err := s.onRegister(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &client.Delegate{ID: cmp.Or(s.id, "d1")}, nil
}

func (s *script) Heartbeat(context.Context, *client.Registration) error { return nil }

func (s *script) Unregister(context.Context, *client.Unregistration) error { return nil }

func (s *script) ReportCapacity(context.Context, string, int) error { return nil }

func (s *script) Poll(ctx context.Context, _ string, q client.PollQuery) (*client.Pending, error) {
	s.mu.Lock()
	s.polls++
	s.since = append(s.since, q.Since)
	s.mu.Unlock()
	if s.onPoll == nil {
		return &client.Pending{}, nil
	}
	return s.onPoll(ctx, q)
}

func (s *script) Acquire(ctx context.Context, _ string, e task.Event) (*task.Task, error) {
	s.mu.Lock()
	s.acquired = append(s.acquired, e.TaskID)
	s.mu.Unlock()
	if s.onAcquire == nil {
		return &task.Task{ID: e.TaskID, Type: e.TaskType}, nil
	}
	return s.onAcquire(ctx, e)
}

func (s *script) Respond(ctx context.Context, id string, _ *task.Task, r *task.Response) error {
	if s.onRespond != nil {
		if err := s.onRespond(ctx, r); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return &client.Error{Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, r)
	s.answeredAs = append(s.answeredAs, id)
	return nil
}

// lists returns the list of a plain manager that never changes.
func lists(events ...task.Event) func(context.Context, client.PollQuery) (*client.Pending, error) {
	return func(context.Context, client.PollQuery) (*client.Pending, error) {
		return &client.Pending{Events: events}, nil
	}
}

// polling runs a delegate with one executor and an interval of a second until stop
// is called. over receives its error.
func (s *script) polling(t *testing.T, routes router.RouteMap, opts ...poller.Option) (p *poller.Poller, stop func(), over chan error) {
	t.Helper()
	p = poller.New(s, router.New(routes), opts...)
	ctx, cancel := context.WithCancel(t.Context())
	over = make(chan error, 1)
	go func() { over <- p.Poll(ctx, 1, "d1", time.Second) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return p, cancel, over
}
