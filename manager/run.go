package manager

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// run is a stage with its progress. The core's lock guards it.
type run struct {
	api.Stage // without StartedAt, which is in lifecycle, and the parts, which are below
	lifecycle
	account string
	order   uint64
	end     uint64 // its number among the ended stages of the account, 0 before its end
	digest  string
	init    step
	steps   []step
	cleanup step
	held    *held // nil for a stage without a hold

	timeout      task.Millis
	queueTimeout time.Duration
	current      *step // the part whose task is in the queue
	next         int   // index of the next step
	groups       []string
	size         int              // see [Budget.Bytes]
	lost         bool             // the delegate was lost
	log          *stage.LogConfig // log service of the init
	stopping     api.Status       // Aborted or Timeout while the stage is being stopped
	failed       api.Status       // status of the first part that failed
	kinds        [][3]string      // by variant: the task types of init, execute and cleanup
	variant      int
	done         chan struct{} // is closed when the stage ends
}

// step is a part of a run: the init, a step or the cleanup.
type step struct {
	api.StepState
	kind    taskkind.Kind
	data    packed
	timeout task.Millis
	runOn   string
	digest  string // in a held stage: the request of the step

	first, firstLog string // ids of the task and the log in the first attempt
}

func newStep(id string, kind taskkind.Kind, timeout task.Millis) step {
	p := step{StepState: api.StepState{ID: id, Status: api.Queued, TaskID: rand.Text()}, kind: kind, timeout: timeout}
	p.first = p.TaskID
	return p
}

// task returns the task that a delegate gets for the step, if it is sent at the time at.
func (p *step) task(n *run, variant int, at time.Time) *task.Task {
	types := n.kinds[variant]
	t := &task.Task{ID: p.TaskID, Data: p.data.json(), Async: true, Timeout: p.timeout}
	switch p.kind {
	case taskkind.Init:
		t.Type = types[0]
	case taskkind.Cleanup:
		t.Type = types[2]
	default:
		t.Type = types[1]
		if n.held != nil {
			t.Data = withDelegate(t.Data, n.DelegateID)
		}
	}
	t.Driver, t.Data = n.Infra, n.enveloped(t, n.timeLeft(p, at))
	n.Trace.joinTask(t)
	return t
}

// timeLeft returns how long the step may run from the time at: until its time-out or the
// stage's.
func (n *run) timeLeft(p *step, at time.Time) task.Millis {
	left := p.timeout
	if n.timeout > 0 && !n.Started.IsZero() {
		left = min(left, max(1, n.timeout-toMillis(at.Sub(n.Started))))
	}
	return left
}

// hidden replaces the value of a secret output.
const hidden = "[secret]"

// view returns the run's public state, without its place. The caller holds the
// core's lock.
func (n *run) view() api.Stage {
	s := n.Stage
	s.StartedAt = n.Started
	s.Selectors = slices.Clone(s.Selectors)
	s.Init, s.Cleanup = n.init.view(), n.cleanup.view()
	s.Open = n.isOpen()
	s.Steps = make([]api.StepState, 0, n.stepCount())
	for _, p := range n.parts {
		if p.kind == taskkind.Execute {
			s.Steps = append(s.Steps, p.view())
		}
	}
	return s
}

// viewWithPlace returns the run's public state with its place in the queue. The
// caller holds the core's lock.
func (c *core) viewWithPlace(n *run) api.Stage {
	s := n.view()
	if s.Status == api.Queued {
		if p, err := c.queue.Place(n.account, n.ID); err == nil {
			s.Place, s.Reason = p.Number, p.Reason
		}
	}
	return s
}

// view returns the step's public state. It hides secret outputs of a state that an older
// version saved; newer ones are hidden already.
func (p *step) view() api.StepState {
	s := p.StepState
	s.Outputs = slices.Clone(s.Outputs)
	s.OutputVars = maps.Clone(s.OutputVars)
	for i, o := range p.Outputs {
		if o.Type != stage.OutputSecret {
			continue
		}
		s.Outputs[i].Value = hidden
		if _, ok := s.OutputVars[o.Key]; ok {
			s.OutputVars[o.Key] = hidden
		}
	}
	return s
}

// Stage returns the state of a stage. It fails with [ErrNotFound].
func (m *Manager) Stage(account, id string) (api.Stage, error) {
	s, _, err := m.core.stage(account, id)
	return s, err
}

// StageEnd returns the time at which a stage ended, zero if it has not ended. It fails
// with [ErrNotFound] if the manager does not know the stage, or does not remember it any
// more. It is cheap enough to be called for each request of a log writer.
func (m *Manager) StageEnd(ctx context.Context, account, id string) (time.Time, error) {
	return synced(ctx, m, func() (time.Time, error) {
		m.core.mu.Lock()
		defer m.core.mu.Unlock()
		n := m.core.stages[key{account, id}]
		if n == nil {
			return time.Time{}, ErrNotFound
		}
		return n.EndedAt, nil
	})
}

// syncedStage returns a stage's state. If this process does not know the stage, it
// first reads the store, because another manager may have just accepted it.
func (m *Manager) syncedStage(ctx context.Context, account, id string) (api.Stage, error) {
	return synced(ctx, m, func() (api.Stage, error) { return m.Stage(account, id) })
}

// stage returns a stage's state, and a channel that is closed when the caller has to
// call stage again: the stage has ended, or the state was reloaded.
func (c *core) stage(account, id string) (api.Stage, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.stages[key{account, id}]
	if n == nil {
		return api.Stage{}, nil, fmt.Errorf("stage %q: %w", id, ErrNotFound)
	}
	return c.viewWithPlace(n), n.done, nil
}

// WaitStage waits until a stage has ended. If ctx ends or the manager closes first,
// it returns the current state and an error. It also fails with [ErrNotFound].
func (m *Manager) WaitStage(ctx context.Context, account, id string) (api.Stage, error) {
	if _, err := m.syncedStage(ctx, account, id); err != nil {
		return api.Stage{}, err
	}
	return waitEnded(ctx, m, (*api.Stage).Ended, func() (api.Stage, <-chan struct{}, error) { return m.core.stage(account, id) })
}

// AbortStage aborts a stage. A queued stage ends at once. Otherwise the manager
// stops the running part, runs the cleanup and ends the stage as [api.Aborted]. A stage
// that has ended or runs its cleanup does not change. AbortStage fails with
// [ErrNotFound].
func (m *Manager) AbortStage(ctx context.Context, account, id string) (api.Stage, error) {
	if _, err := m.applyCommand(ctx, &command{Account: account, AbortStage: &idCommand{id}}); err != nil {
		return api.Stage{}, err
	}
	return m.Stage(account, id)
}
