package transaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

// init opens a transaction. A driver that fails is an answer with status
// FAILURE, after the transaction has cleaned itself up (SPEC T3).
func (m *Stages) init(ctx context.Context, req *task.Request[stage.InitRequest]) (*stage.InitResponse, error) {
	id := req.Data.TransactionID()
	if id == "" {
		return nil, task.BadRequest(errors.New("the init names no transaction: group_id or network.id is needed"))
	}
	t, isNew, err := m.admit(id, req)
	if err != nil {
		return nil, err
	}
	if !isNew { // the same init again: its first answer may have been lost
		select {
		case <-t.ready:
			if t.initErr == nil && t.isClosing() {
				return nil, m.refusal([]string{id})
			}
			return m.initAnswer(t, t.initErr), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	t.hide(ctx)
	ctx = t.withLogger(ctx, id, "")
	m.takeSlot(ctx, t)
	log := t.initLog(ctx, req)
	t.env.Log = log
	err = t.start(ctx)
	m.giveBack(ctx, id) // what an init has left that did not get to its driver, or that wanted another pool
	t.endInit(ctx, log, err)
	t.initErr = err
	close(t.ready)
	if err != nil {
		err = errors.Join(err, t.close(ctx))
		logger.FromContext(ctx).Warn().Err(err).Msg("the init of a transaction failed")
	}
	return m.initAnswer(t, err), nil
}

// admit makes the transaction of a new init, or finds the one that a repeated
// init means.
func (m *Stages) admit(id string, req *task.Request[stage.InitRequest]) (*transaction, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.open[id]; t != nil {
		return t, false, nil
	}
	if _, ok := m.closed[id]; ok {
		return nil, false, &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
	}
	if m.shutdown {
		return nil, false, task.Errorf(task.RetryOnOtherDelegate, "this delegate (%s) is shutting down", m.delegate)
	}
	t := m.newTransaction(m.environment(id, req))
	t.secrets.Add(req.Data.Secrets...)
	t.secrets.Add(cloneSecrets(req.Data.Clone)...)
	for _, step := range req.Data.Steps {
		if step != nil && step.Auth != nil {
			t.secrets.Add(step.Auth.Password)
		}
	}
	m.open[id] = t
	return t, true, nil
}

// takeSlot makes the transaction the owner of the slot that the poller took for
// its init. An init that came another way counts too.
func (m *Stages) takeSlot(ctx context.Context, t *transaction) {
	if slot, ok := capacity.FromContext(ctx); ok && slot.Keep() {
		t.slot = slot
	} else {
		t.slot = m.slots.Force()
	}
}

func (m *Stages) environment(id string, req *task.Request[stage.InitRequest]) driver.Environment {
	d := &req.Data
	labels := map[string]string{}
	maps.Copy(labels, d.Network.Labels)
	labels[driver.LabelTransaction] = id
	labels[driver.LabelDelegate] = m.delegate
	if req.Task.Account != "" {
		labels[driver.LabelAccount] = req.Task.Account
	}
	return driver.Environment{
		ID: id, Labels: labels, Network: d.Network, Volumes: d.Volumes,
		MountDockerSocket: d.MountDockerSocket, Envs: d.Envs, Files: d.Files, Clone: d.Clone, Steps: d.Steps,
	}
}

// start begins the record and runs the driver's init, for as long as both ctx
// and the transaction live.
func (t *transaction) start(ctx context.Context) error {
	ctx, stop := join(ctx, t.alive)
	defer stop()
	if err := t.stages.awaitSettled(ctx, t.env.ID); err != nil {
		return fmt.Errorf("an earlier attempt at the transaction has to be cleaned up first: %w", err)
	}
	j, err := t.stages.ledger.begin(&t.env)
	if err != nil {
		return fmt.Errorf("nothing was started: %w", err)
	}
	t.journal = j
	if err := t.guard(ctx, "init", func() error { return t.stages.driver.Init(ctx, &t.env, t) }); err != nil {
		return withCause(ctx, err)
	}
	t.note()
	// With the driver's state. A later process has use for it as long as there are
	// notes, which are in memory.
	return j.append(entry{Open: &t.env, Ready: t.notes != nil}, !durable)
}

func (m *Stages) initAnswer(t *transaction, err error) *stage.InitResponse {
	r := &stage.InitResponse{
		Status: status(err), InfraType: m.driver.Infra(),
		DelegateMeta: stage.DelegateMeta{ID: m.delegate, HostName: m.delegate},
	}
	if err != nil {
		r.ErrorMessage = t.secrets.Mask(err.Error())
	}
	return r
}

// execute runs a step. A step that ran and failed, and a driver that fails, are
// answers with status FAILURE or TIMEOUT.
func (m *Stages) execute(ctx context.Context, req *task.Request[stage.ExecuteRequest]) (*stage.ExecuteResponse, error) {
	ids := req.Data.TransactionIDs()
	t, ok := m.find(ids)
	if !ok || !t.enter() {
		return nil, m.refusal(ids)
	}
	defer t.leave()
	select {
	case <-t.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if t.initErr != nil {
		return nil, m.refusal(ids)
	}
	ctx, stop := join(ctx, t.alive)
	defer stop()
	id := taskID(ctx, req.Data.ID)
	if r := t.answered(id); r != nil {
		return r, nil // it was on its way when the delegate ended
	}
	t.hide(ctx, req.Data.Secrets...)
	ctx = t.withLogger(ctx, cmp.Or(req.Data.StageRuntimeID, t.env.ID), req.Data.ID)
	if req.Data.Auth != nil {
		t.secrets.Add(req.Data.Auth.Password) // registries' words come back as errors
	}

	e := t.newExecution(ctx, req, id)
	if s, begun := t.begunBefore(id); !begun || !t.goOn(ctx, e, s) {
		t.perform(ctx, e)
	}
	t.endStep(ctx, e)
	r := t.answer(e.res, e.err)
	t.remember(e, r)
	return r, nil
}

// answer masks whatever is not declared a secret.
func (t *transaction) answer(res *driver.Result, err error) *stage.ExecuteResponse {
	r := &stage.ExecuteResponse{Status: status(err)}
	if res != nil {
		t.secrets.Add(slices.Collect(maps.Values(res.Secrets))...)
	}
	if err != nil {
		r.ErrorMessage = t.secrets.Mask(err.Error())
	}
	if res == nil {
		return r
	}
	t.export(res.Env)
	r.ExitCode, r.OOMKilled, r.Artifact = res.ExitCode, res.OOMKilled, t.maskArtifact(res.Artifact)
	r.Tests = t.maskTests(res.Tests)
	switch {
	case err != nil:
	case res.OOMKilled:
		r.Status, r.ErrorMessage = stage.Failure, fmt.Sprintf("the step ran out of memory (exit code %d)", res.ExitCode)
	case res.ExitCode != 0:
		r.Status, r.ErrorMessage = stage.Failure, fmt.Sprintf("exit code %d", res.ExitCode)
	case res.Lost != "":
		r.Status, r.ErrorMessage = stage.Failure, t.secrets.Mask(res.Lost)
	}
	for _, k := range slices.Sorted(maps.Keys(res.Outputs)) {
		v := t.secrets.Mask(res.Outputs[k])
		k = t.secrets.Mask(k)
		if r.OutputVars == nil {
			r.OutputVars = map[string]string{}
		}
		r.OutputVars[k] = v
		r.Outputs = append(r.Outputs, stage.Output{Key: k, Value: v, Type: stage.OutputString})
	}
	for _, k := range slices.Sorted(maps.Keys(res.Secrets)) {
		r.Outputs = append(r.Outputs, stage.Output{Key: t.secrets.Mask(k), Value: res.Secrets[k], Type: stage.OutputSecret})
	}
	return r
}

// maskArtifact masks an artifact that is text, which most are: a list of what has
// been uploaded where. Other content would not be what it was.
func (t *transaction) maskArtifact(b []byte) []byte {
	if len(b) == 0 || !utf8.Valid(b) {
		return b
	}
	return []byte(t.secrets.Mask(string(b)))
}

// clean ends a transaction. It needs nothing but the id: a transaction that is
// not here, never was, or has ended already, is clean (SPEC T3).
func (m *Stages) clean(ctx context.Context, req *task.Request[stage.CleanupRequest]) (*stage.CleanupResponse, error) {
	ids := req.Data.TransactionIDs()
	if len(ids) == 0 {
		return nil, task.BadRequest(errors.New("the cleanup names no transaction: group_id or network is needed"))
	}
	mask := func(s string) string { return s }
	var err error
	switch open, stuck := m.findOrBlock(ids); {
	case open != nil:
		mask, err = open.secrets.Mask, open.close(ctx)
	case stuck != nil:
		mask, err = stuck.secrets.Mask, stuck.sweep(context.WithoutCancel(ctx))
	default:
		err = m.sweepByLabels(context.WithoutCancel(ctx))
	}
	err = errors.Join(err, m.unreserve(ctx, ids...))
	if err != nil {
		return &stage.CleanupResponse{Status: stage.Failure, ErrorMessage: mask(err.Error())}, nil
	}
	return &stage.CleanupResponse{Status: stage.Success}, nil
}

// Orphan cleans up the transaction that a task of this manager's routes belongs
// to: the task's manager has forgotten it, so that no cleanup will come. It fits
// poller.WithOrphan.
func (m *Stages) CleanUpForgotten(ctx context.Context, t *task.Task) {
	tx, ok := m.find(transactionIDs(t))
	if !ok {
		return
	}
	tx.log.Warn().Msg("the manager has forgotten a transaction: cleaning up")
	if err := tx.close(ctx); err != nil {
		tx.logCleanup(err)
	}
}

func status(err error) stage.Status {
	switch {
	case err == nil:
		return stage.Success
	case errors.Is(err, context.DeadlineExceeded):
		return stage.Timeout
	default:
		return stage.Failure
	}
}

// join returns a context that ends with either of two.
func join(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// withCause tells why ctx ended, where the error does not.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
