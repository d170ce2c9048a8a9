package transaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

// init opens a transaction. A failure of the driver is an answer with status
// FAILURE, after the transaction has been cleaned up (rule T3).
func (s *Stages) init(ctx context.Context, req *task.Request[stage.InitRequest]) (*stage.InitResponse, error) {
	id := req.Data.TransactionID()
	if id == "" {
		return nil, task.BadRequest(errors.New("the init names no transaction: group_id or network.id is needed"))
	}
	t, isNew, err := s.admit(id, req)
	if err != nil {
		return nil, err
	}
	if !isNew { // a repeated init: its first answer may have been lost
		select {
		case <-t.ready:
			if t.initErr == nil && t.isClosing() {
				return nil, s.refusal([]string{id})
			}
			return s.initAnswer(t, t.initErr), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	t.addSecrets(ctx)
	ctx = t.withLogger(ctx, id, "")
	s.takeSlot(ctx, t)
	log := t.initLog(ctx, req)
	t.env.Log, t.began = log, time.Now()
	err = t.start(ctx)
	s.releaseReservation(ctx, id) // if the init failed before the driver used it, or asked for another pool
	t.endInit(ctx, log, err)
	t.initErr = err
	close(t.ready)
	if err != nil {
		err = errors.Join(err, t.close(ctx))
		logger.FromContext(ctx).Warn().Err(err).Msg("the init of a transaction failed")
	}
	return s.initAnswer(t, err), nil
}

// admit returns a new transaction for an init, or the existing one of a repeated
// init. The second result reports whether it is new.
func (s *Stages) admit(id string, req *task.Request[stage.InitRequest]) (*transaction, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.open[id]; t != nil {
		return t, false, nil
	}
	if _, ok := s.closed[id]; ok {
		return nil, false, &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
	}
	if s.shutdown {
		return nil, false, task.Errorf(task.RetryOnOtherDelegate, "this delegate (%s) is shutting down", s.delegate)
	}
	t := s.newTransaction(s.environment(id, req))
	t.logConfig = req.Data.LogConfig
	t.secrets.Add(req.Data.Secrets...)
	t.secrets.Add(cloneSecrets(req.Data.Clone)...)
	for _, step := range req.Data.Steps {
		if step != nil && step.Auth != nil {
			t.secrets.Add(step.Auth.Password)
		}
	}
	s.open[id] = t
	return t, true, nil
}

// takeSlot gives the transaction the slot that the poller took for its init. An
// init without one takes a slot even if none is free.
func (s *Stages) takeSlot(ctx context.Context, t *transaction) {
	if slot, ok := capacity.FromContext(ctx); ok && slot.Keep() {
		t.slot = slot
	} else {
		t.slot = s.slots.Force()
	}
}

func (s *Stages) environment(id string, req *task.Request[stage.InitRequest]) driver.Environment {
	d := &req.Data
	labels := map[string]string{}
	maps.Copy(labels, d.Network.Labels)
	labels[driver.LabelTransaction] = id
	labels[driver.LabelDelegate] = s.delegate
	if req.Task.Account != "" {
		labels[driver.LabelAccount] = req.Task.Account
	}
	return driver.Environment{
		ID: id, Labels: labels, Network: d.Network, Volumes: d.Volumes,
		MountDockerSocket: d.MountDockerSocket, Envs: d.Envs, Files: d.Files, Clone: d.Clone, Steps: d.Steps,
	}
}

// start creates the record and runs the driver's init, as long as ctx and the
// transaction live.
func (t *transaction) start(ctx context.Context) error {
	ctx, stop := join(ctx, t.alive)
	defer stop()
	if err := t.stages.awaitCleanup(ctx, t.env.ID); err != nil {
		return fmt.Errorf("an earlier attempt at the transaction must be cleaned up first: %w", err)
	}
	if err := t.checkInitLabels(); err != nil {
		return fmt.Errorf("nothing was started: %w", err)
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
	// The entry has the driver's state. A later process can use it only with the notes,
	// which are in memory, so it need not be durable.
	return j.append(entry{Open: &t.env, Ready: t.notes != nil}, !durable)
}

func (s *Stages) initAnswer(t *transaction, err error) *stage.InitResponse {
	r := &stage.InitResponse{
		Status: status(err), InfraType: s.driver.Infra(),
		DelegateMeta: stage.DelegateMeta{ID: s.delegate, HostName: s.delegate},
	}
	if e := &t.env; !e.CloneBegan.IsZero() {
		r.Clone = &stage.CloneTime{After: e.CloneBegan.Sub(t.began).Milliseconds(), Took: e.CloneEnded.Sub(e.CloneBegan).Milliseconds()}
	}
	if err != nil {
		r.ErrorMessage, r.FailureKind = t.secrets.Mask(err.Error()), failureKind(err)
	}
	return r
}

// failureKind returns the kind that a driver has given to an error, or an empty string. A
// time-out has a status and needs no kind.
func failureKind(err error) string {
	var kind interface{ FailureKind() string }
	switch {
	case status(err) != stage.Failure:
		return ""
	case errors.Is(err, driver.ErrLost):
		return stage.FailureDelegateLost
	case errors.As(err, &kind):
		return kind.FailureKind()
	}
	return ""
}

// execute runs a step. The answer of a step that failed, or whose driver failed,
// has the status FAILURE or TIMEOUT.
func (s *Stages) execute(ctx context.Context, req *task.Request[stage.ExecuteRequest]) (*stage.ExecuteResponse, error) {
	ids := req.Data.TransactionIDs()
	t, ok := s.find(ids)
	if !ok || !t.beginUse() {
		return nil, s.refusal(ids)
	}
	defer t.endUse()
	if err := t.awaitInit(ctx); err != nil {
		return nil, err
	}
	if t.initErr != nil {
		return nil, s.refusal(ids)
	}
	ctx, stop := join(ctx, t.alive)
	defer stop()
	id := taskID(ctx, req.Data.ID)
	t.addSecrets(ctx, req.Data.Secrets...)
	ctx = t.withLogger(ctx, cmp.Or(req.Data.StageRuntimeID, t.env.ID), req.Data.ID)
	if req.Data.Auth != nil {
		t.secrets.Add(req.Data.Auth.Password) // errors may quote the registry
	}

	e := t.newExecution(ctx, req, id)
	if s := t.earlierAnswer(id); s.answer != nil { // the delegate ended while it was delivered
		t.endEarlierLog(ctx, e, s)
		return s.answer, nil
	}
	if earlier, begun := t.takeEarlierStep(id); !begun || !t.followStep(ctx, e, earlier) {
		t.runStep(ctx, e)
	}
	t.explainFailure(ctx, e)
	r := t.answer(e.res, e.err)
	t.noteAnswer(e, r) // before the end of the log, which may take long: a later process must know how the step ended
	t.endStep(ctx, e)
	e.res.End() // until here, a later process can read the output again
	return r, nil
}

// awaitInit waits for the end of the init. It returns nil if the init has ended, even if ctx
// has ended too: then the driver decides how the step ends.
func (t *transaction) awaitInit(ctx context.Context) error {
	select {
	case <-t.ready:
		return nil
	default:
	}
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer returns the answer of a step. All text is masked, except values that are declared
// secret outputs.
func (t *transaction) answer(res *driver.Result, err error) *stage.ExecuteResponse {
	r := &stage.ExecuteResponse{Status: status(err)}
	if res != nil {
		t.secrets.Add(slices.Collect(maps.Values(res.Secrets))...)
	}
	if err != nil {
		r.ErrorMessage, r.FailureKind = t.secrets.Mask(err.Error()), failureKind(err)
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

// maskArtifact masks an artifact that is text, usually a list of uploaded files.
// Other content would be damaged by masking.
func (t *transaction) maskArtifact(b []byte) []byte {
	if len(b) == 0 || !utf8.Valid(b) {
		return b
	}
	return []byte(t.secrets.Mask(string(b)))
}

// cleanUp ends a transaction. It needs only the id. A transaction that is unknown
// here, or has ended already, is clean (rule T3).
func (s *Stages) cleanUp(ctx context.Context, req *task.Request[stage.CleanupRequest]) (*stage.CleanupResponse, error) {
	ids := req.Data.TransactionIDs()
	if len(ids) == 0 {
		return nil, task.BadRequest(errors.New("the cleanup names no transaction: group_id or network is needed"))
	}
	mask := func(text string) string { return text }
	var err error
	open, stuck := s.findOrBlock(ids)
	switch {
	case open != nil:
		mask, err = open.secrets.Mask, open.close(ctx)
	case stuck != nil:
		mask, err = stuck.secrets.Mask, stuck.sweep(context.WithoutCancel(ctx))
	default:
		err = s.sweepByLabels(context.WithoutCancel(ctx))
	}
	err = errors.Join(err, s.unreserve(ctx, ids...))
	if err != nil {
		return &stage.CleanupResponse{Status: stage.Failure, ErrorMessage: mask(err.Error())}, nil
	}
	return &stage.CleanupResponse{Status: stage.Success, ErrorMessage: mask(cmp.Or(open, stuck).remarked())}, nil
}

// remarked returns the remarks of the driver about a cleanup that succeeded. t may be nil.
func (t *transaction) remarked() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.remarks)
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "; ")
}

// CleanUpForgotten cleans up the transaction of a task that its manager has
// forgotten: no cleanup task will come. The poller calls it.
func (s *Stages) CleanUpForgotten(ctx context.Context, t *task.Task) {
	tx, ok := s.find(transactionIDs(t))
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

// join returns a context that ends when one of two contexts ends.
func join(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// withCause adds the cause of ctx to an error that does not have it.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
