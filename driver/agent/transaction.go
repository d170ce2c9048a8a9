package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/stage"
)

// transaction is a stage from its setup to its destroy.
type transaction struct {
	agent  *Agent
	env    driver.Environment // written by init, read after ready is closed
	log    *stage.LogConfig   // from the setup request
	masks  *secrets.Set
	ledger ledger

	ready   chan struct{} // closed when init has returned
	initErr error         // set before ready is closed
	initLog initLog

	// alive ends with the stage.
	alive context.Context //nolint:containedctx // lifetime of the stage, not of a call
	stop  context.CancelCauseFunc
	work  sync.WaitGroup // steps, their logs and their reports
	// ending is held by the destroy that is running.
	ending chan struct{}

	mu      sync.Mutex
	closing bool                         // accepts no more steps; guarded by mu
	steps   map[string]*step             // by key; guarded by mu
	barred  map[string]bool              // keys that were stopped before they started; guarded by mu
	began   chan struct{}                // closed when a step starts; guarded by mu
	exports map[string]map[string]string // by stage_runtime_id; guarded by mu
}

func newTransaction(a *Agent, id string, req *SetupRequest) *transaction {
	labels := maps.Clone(req.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[driver.LabelTransaction] = id
	t := &transaction{
		agent: a, log: req.LogConfig, masks: secrets.NewSet(a.cfg.Masks, req.Secrets...),
		ready: make(chan struct{}), ending: make(chan struct{}, 1),
		steps: map[string]*step{}, barred: map[string]bool{}, began: make(chan struct{}), exports: map[string]map[string]string{},
	}
	t.alive, t.stop = context.WithCancelCause(context.Background())
	if req.Clone != nil && req.Clone.Auth != nil {
		t.masks.Add(req.Clone.Auth.Password)
	}
	t.env = driver.Environment{
		ID: id, Labels: labels, Network: req.Network, Volumes: req.Volumes,
		MountDockerSocket: req.MountDockerSocket, Envs: req.Envs, Files: req.Files, Clone: req.Clone,
		Log: &t.initLog, Mask: t.masks.Mask,
	}
	return t
}

// errDestroyed is the cause that stops the steps of a destroyed stage.
var errDestroyed = errors.New("the stage has been destroyed")

// init runs until the stage is destroyed, even if the caller has gone.
func (t *transaction) init() {
	t.initErr = guard("setup", func() error { return t.agent.driver.Init(t.alive, &t.env, &t.ledger) })
	if t.initErr != nil && t.alive.Err() != nil {
		t.initErr = fmt.Errorf("%w (%w)", context.Cause(t.alive), t.initErr)
	}
}

// start starts a step, once for each key.
func (t *transaction) start(req *StartStepRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := req.stepKey()
	switch {
	case t.closing:
		return badRequest(errDestroyed)
	case t.steps[key] != nil:
		return nil
	case t.barred[key]:
		return badRequest(errStopped)
	}
	s := newStep(t, req)
	t.steps[key] = s
	close(t.began)
	t.began = make(chan struct{})
	t.work.Go(s.run)
	return nil
}

func (t *transaction) find(key string) (*step, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.steps[key]; s != nil {
		return s, nil
	}
	return nil, badRequest(errNotStarted)
}

// findOrBar returns the step. If it has not started, findOrBar prevents its start: the start
// request may still be on its way.
func (t *transaction) findOrBar(key string) *step {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.steps[key]
	if s == nil {
		t.barred[key] = true
	}
	return s
}

// await waits for a step to start.
func (t *transaction) await(ctx context.Context, key string, limit time.Duration) (*step, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		t.mu.Lock()
		s, began := t.steps[key], t.began
		t.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-began:
		case <-timer.C:
			return nil, badRequest(errNotStarted)
		case <-t.alive.Done():
			return nil, badRequest(errDestroyed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errNotStarted has the text that the protocol demands.
var errNotStarted = errors.New("Step has not started") //nolint:staticcheck // docs/protocol.md, section 5

// environment returns the stage's environment for a step. It includes the variables that earlier
// steps of the same stage_runtime_id exported.
func (t *transaction) environment(stageRuntimeID string) *driver.Environment {
	env := t.env
	env.Envs = maps.Clone(env.Envs)
	if env.Envs == nil {
		env.Envs = map[string]string{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(env.Envs, t.exports[stageRuntimeID])
	return &env
}

// export keeps a step's DRONE_ENV for the next steps. Without a stage_runtime_id the driver that
// starts the steps does that.
func (t *transaction) export(stageRuntimeID string, env map[string]string) {
	if stageRuntimeID == "" || len(env) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exports[stageRuntimeID] == nil {
		t.exports[stageRuntimeID] = map[string]string{}
	}
	maps.Copy(t.exports[stageRuntimeID], env)
}

// end stops all steps and removes the stage's resources. The caller may repeat it until it
// succeeds; then it does nothing.
func (t *transaction) end(ctx context.Context) error {
	select {
	case t.ending <- struct{}{}:
		defer func() { <-t.ending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.stop(errDestroyed)
	select {
	case <-t.ready:
	case <-ctx.Done():
		return fmt.Errorf("stop the setup: %w", ctx.Err())
	}
	t.mu.Lock()
	t.closing = true
	steps := maps.Clone(t.steps)
	t.mu.Unlock()
	for _, s := range steps {
		if err := await(ctx, s.over); err != nil {
			return fmt.Errorf("stop step %q: %w", s.req.ID, err)
		}
	}
	if err := t.cleanup(ctx, t.ledger.all()); err != nil {
		return err
	}
	for _, s := range steps {
		s.out.end() // detached steps: no process runs any more
	}
	err := await(ctx, t.worked())
	for _, s := range steps {
		s.out.drop()
	}
	if err != nil {
		return fmt.Errorf("all resources are removed, but logs or reports are not sent yet: %w", err)
	}
	return nil
}

// worked returns a channel that is closed when all logs are closed and all reports are sent.
func (t *transaction) worked() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.work.Wait()
	}()
	return done
}

// cleanup removes resources.
func (t *transaction) cleanup(ctx context.Context, rs []driver.Resource) error {
	if len(rs) == 0 {
		return nil
	}
	var left []driver.Resource
	err := guard("cleanup", func() (err error) {
		left, err = t.agent.driver.Cleanup(ctx, rs)
		return err
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d resources could not be removed", len(left))
	}
	return err
}

// guard converts a panic of the driver to an error.
func guard(what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the %s panicked: %v\n%s", what, p, debug.Stack())
		}
	}()
	return f()
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxInitLog limits the log of an init, in bytes.
const maxInitLog = 1 << 20

// initLog keeps the beginning of an init's log.
type initLog struct {
	mu  sync.Mutex
	b   bytes.Buffer // guarded by mu
	cut bool         // guarded by mu
}

// Write implements [io.Writer].
func (l *initLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := maxInitLog - l.b.Len()
	l.cut = l.cut || len(p) > room
	l.b.Write(p[:min(room, len(p))])
	return len(p), nil
}

// String returns the text written so far.
func (l *initLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return l.b.String() + "\n(the rest of the init's log is omitted)\n"
	}
	return l.b.String()
}
