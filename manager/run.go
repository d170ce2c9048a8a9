package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// run is a stage and what has become of it. The core's lock guards it.
type run struct {
	Stage   // but for its parts
	account string
	order   uint64
	digest  string
	init    step
	steps   []step
	cleanup step

	timeout      task.Millis
	queueTimeout time.Duration
	current      *step // whose task the queue has
	next         int   // of steps
	groups       []string
	retry        *Retry
	lost         bool             // its delegate was
	log          *stage.LogConfig // of its init
	stopping     Status           // Aborted or Timeout, once the stage is to stop
	failed       Status           // of the first part that failed
	kinds        [][3]string      // by variant: the types of init, execute and cleanup
	variant      int
	done         chan struct{} // closed at the end
	trace        tracing
}

// step is a part of a run: its init, a step or its cleanup.
type step struct {
	StepState
	kind    task.Kind
	data    json.RawMessage
	timeout task.Millis
	runOn   string

	first, firstLog string // the ids of the task and the log in the first attempt
}

func newStep(id string, kind task.Kind, timeout task.Millis) step {
	p := step{StepState: StepState{ID: id, Status: Queued, TaskID: rand.Text()}, kind: kind, timeout: timeout}
	p.first = p.TaskID
	return p
}

// task is what is sent for the step.
func (p *step) task(n *run, variant int) *task.Task {
	types := n.kinds[variant]
	t := &task.Task{ID: p.TaskID, Data: p.data, Async: true, Timeout: p.timeout}
	switch p.kind {
	case task.Init:
		t.Type = types[0]
	case task.Cleanup:
		t.Type = types[2]
	default:
		t.Type = types[1]
	}
	t.Driver, t.Data = n.Infra, enveloped(t, n.account)
	n.trace.join(t)
	return t
}

// hidden stands for the value of a secret output.
const hidden = "[secret]"

// view is the run as it is shown, but for its place. The caller holds the
// manager's lock.
func (n *run) view() Stage {
	s := n.Stage
	s.Selectors = slices.Clone(s.Selectors)
	s.Init, s.Cleanup = n.init.show(), n.cleanup.show()
	s.Steps = make([]StepState, 0, len(n.steps))
	for i := range n.steps {
		s.Steps = append(s.Steps, n.steps[i].show())
	}
	return s
}

// placed is the run as it is shown, with its place in the queue. The caller
// holds mu.
func (c *core) placed(n *run) Stage {
	s := n.view()
	if s.Status == Queued {
		if p, err := c.queue.Place(n.account, n.ID); err == nil {
			s.Place, s.Reason = p.Number, p.Reason
		}
	}
	return s
}

// show is the step as it is shown.
func (p *step) show() StepState {
	s := p.StepState
	s.Outputs = slices.Clone(s.Outputs)
	for i := range s.Outputs {
		if s.Outputs[i].Type == stage.OutputSecret {
			s.Outputs[i].Value = hidden
		}
	}
	return s
}

// Stage is the state of a stage. It fails with [ErrNotFound].
func (m *Manager) Stage(account, id string) (Stage, error) {
	s, _, err := m.core.stage(account, id)
	return s, err
}

// fresh is a stage's state, also when another manager took it a moment ago.
func (m *Manager) fresh(ctx context.Context, account, id string) (Stage, error) {
	s, err := m.Stage(account, id)
	if err != nil && m.journal.Sync(ctx) == nil {
		return m.Stage(account, id)
	}
	return s, err
}

// stage is a stage's state and a channel that is closed when it has ended, or has
// to be looked at again.
func (c *core) stage(account, id string) (Stage, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.stages[key{account, id}]
	if n == nil {
		return Stage{}, nil, fmt.Errorf("stage %q: %w", id, ErrNotFound)
	}
	return c.placed(n), n.done, nil
}

// Stages are the account's stages, the oldest first.
func (m *Manager) Stages(account string) []Stage {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	var runs []*run
	for k, n := range c.stages {
		if k.account == account {
			runs = append(runs, n)
		}
	}
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.order, b.order) })
	places := c.queue.Places(account)
	out := make([]Stage, 0, len(runs))
	for _, n := range runs {
		s := n.view()
		if s.Status == Queued {
			s.Place, s.Reason = places[n.ID].Number, places[n.ID].Reason
		}
		out = append(out, s)
	}
	return out
}

// WaitStage waits until a stage has ended. When ctx ends or the manager closes
// before that, it returns the state of that moment with an error. It also fails
// with [ErrNotFound].
func (m *Manager) WaitStage(ctx context.Context, account, id string) (Stage, error) {
	if _, err := m.fresh(ctx, account, id); err != nil {
		return Stage{}, err
	}
	for {
		s, done, err := m.core.stage(account, id)
		if err != nil || s.Status.Ended() {
			return s, err
		}
		if err := m.await(ctx, done); err != nil {
			if now, gone := m.Stage(account, id); gone == nil {
				s = now
			}
			return s, err
		}
	}
}

// await waits for the end of something.
func (m *Manager) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.closing:
		return ErrClosed
	}
}

// AbortStage aborts a stage: at once while it is queued; otherwise what runs is
// stopped and the cleanup runs before the stage ends as [Aborted]. A stage that
// has ended or is being cleaned up stays as it is. It fails with [ErrNotFound].
func (m *Manager) AbortStage(ctx context.Context, account, id string) (Stage, error) {
	if _, err := m.do(ctx, &command{Account: account, AbortStage: &idCommand{id}}); err != nil {
		return Stage{}, err
	}
	return m.Stage(account, id)
}
