// A runner with its own client, a filter and tokens of its own.
package own

import (
	"context"
	"errors"
	"strings"

	"github.com/harness/dlite/client"
	"github.com/harness/dlite/delegate"
	"github.com/harness/dlite/poller"
	"github.com/harness/dlite/router"
	"github.com/harness/dlite/task"
)

// memory is a task server in memory.
type memory struct {
	tasks    map[string]*client.Task
	answers  map[string]string
	capacity int
}

var _ client.Client = (*memory)(nil)

func (m *memory) Register(ctx context.Context, r *client.RegisterRequest) (*client.RegisterResponse, error) {
	return &client.RegisterResponse{}, nil
}

func (m *memory) Heartbeat(context.Context, *client.RegisterRequest) error { return nil }

func (m *memory) Unregister(context.Context, *client.UnregisterRequest) error { return nil }

func (m *memory) RegisterCapacity(ctx context.Context, id string, capacity *client.DelegateCapacity) error {
	if capacity.MaxBuilds < 0 {
		return errors.New("the capacity is negative")
	}
	m.capacity = capacity.MaxBuilds
	return nil
}

func (m *memory) GetTaskEvents(ctx context.Context, id string) (*client.TaskEventsResponse, error) {
	out := &client.TaskEventsResponse{}
	for name := range m.tasks {
		out.TaskEvents = append(out.TaskEvents, client.TaskEvent{TaskID: name, AccountID: "account"})
	}
	return out, nil
}

func (m *memory) Acquire(ctx context.Context, id, taskID string) (*client.Task, error) {
	t := m.tasks[taskID]
	delete(m.tasks, taskID)
	return t, nil
}

func (m *memory) SendStatus(ctx context.Context, id, taskID string, r *client.TaskResponse) error {
	m.answers[taskID] = string(r.Data)
	return nil
}

func (m *memory) SendRunnerStatus(ctx context.Context, id, taskID string, r *client.RunnerTaskResponse) error {
	m.answers[taskID] = "runner " + string(r.Data)
	return nil
}

// wanted accepts the tasks of builds.
func wanted(ev *client.TaskEvent) bool { return strings.HasPrefix(ev.TaskType, "CI_") }

// settings are the parts that a runner may replace.
type settings struct {
	filter poller.FilterFn
	tokens *delegate.TokenCache
}

func newSettings(account, secret string) settings {
	return settings{filter: wanted, tokens: delegate.NewTokenCache(account, secret)}
}

func run(ctx context.Context, m *memory, s settings, routes map[string]task.Handler) error {
	p := poller.New("account", "secret", "runner", nil, m, router.NewRouter(routes))
	p.SetFilter(s.filter)
	_, err := p.Register(ctx)
	return err
}
