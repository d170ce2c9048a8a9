package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// carryOut carries out commands of one stage at the manager, in their order.
func (s *Service) carryOut(ctx context.Context, messages []store.Message) error {
	for _, m := range messages {
		var c engine.Command
		numbers := json.NewDecoder(bytes.NewReader(m.Data))
		numbers.UseNumber() // as float64, large numbers would be rounded and get an exponent
		if err := numbers.Decode(&c); err != nil {
			return broken("decoding a command: %w", err)
		}
		if err := s.command(ctx, m, &c); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) command(ctx context.Context, m store.Message, c *engine.Command) error {
	switch c.Kind {
	case engine.OpenStage:
		return s.openStage(ctx, m, c)
	case engine.AppendSteps:
		return s.appendSteps(ctx, m, c)
	case engine.FinishStage:
		_, err := s.cfg.Manager.FinishStage(ctx, m.Account, stageID(m.Run, c.Node, c.Attempt))
		return s.confirm(ctx, m, c, err)
	case engine.AbortStage:
		_, err := s.cfg.Manager.AbortStage(ctx, m.Account, stageID(m.Run, c.Node, c.Attempt))
		return s.confirm(ctx, m, c, err)
	case engine.AbortStep:
		step := steps.ID(engine.Step{Node: c.Node, Attempt: c.Attempt})
		_, err := s.cfg.Manager.AbortStep(ctx, m.Account, stageID(m.Run, c.Stage, c.StageAttempt), step)
		return s.confirm(ctx, m, c, err)
	}
	return broken("the command %q is not known: a newer version of the service has sent it", c.Kind)
}

// stageID returns the id at the manager of an attempt of a stage.
func stageID(run, node string, attempt int) string {
	const most = 120
	id := run + "." + node[strings.LastIndex(node, ".")+1:]
	if attempt > 1 {
		id += "." + strconv.Itoa(attempt)
	}
	if len(id) > most {
		return digest([]string{id})
	}
	return id
}

// remove ends the handling of a message with events for its run.
func (s *Service) remove(ctx context.Context, m store.Message, events ...engine.Event) error {
	if len(events) == 0 {
		return s.finish(ctx, m)
	}
	return s.store.Update(ctx, func(tx *store.Tx) error { return removeIn(tx, m, events...) })
}

func removeIn(tx *store.Tx, m store.Message, events ...engine.Event) error {
	return errors.Join(sendEvents(tx, m.Account, m.Run, "", events...), tx.Done(m))
}

// postpone tells the nodes why the manager does not take them yet, and returns the error, so that
// the message is tried again.
func (s *Service) postpone(ctx context.Context, m store.Message, err error, nodes ...engine.Step) error {
	sent := s.store.Update(ctx, func(tx *store.Tx) error {
		var events []engine.Event
		for _, n := range nodes {
			events = append(events, waits(n, err.Error()))
		}
		return sendEvents(tx, m.Account, m.Run, err.Error(), events...)
	})
	return errors.Join(err, sent)
}

// taken returns the events that end the waiting of nodes, if they may have waited.
func taken(m store.Message, nodes ...engine.Step) (events []engine.Event) {
	if m.Tries <= 1 {
		return nil
	}
	for _, n := range nodes {
		events = append(events, waits(n, ""))
	}
	return events
}

func waits(n engine.Step, reason string) engine.Event {
	return engine.Event{Kind: engine.Waits, Node: n.Node, Attempt: max(n.Attempt, 1), Reason: reason}
}

// superseded reports whether an abort of the stage waits behind a message that was tried before. The
// manager may not have taken it because of a full budget, and the abort must not wait for that.
func (s *Service) superseded(ctx context.Context, m store.Message) (bool, error) {
	if m.Tries <= 1 {
		return false, nil
	}
	following, err := s.store.Following(ctx, m)
	for _, f := range following {
		var c engine.Command
		if json.Unmarshal(f.Data, &c) == nil && c.Kind == engine.AbortStage {
			return true, err
		}
	}
	return false, err
}

// openStage opens a stage. The stage is tracked first, so that its events are recognised.
func (s *Service) openStage(ctx context.Context, m store.Message, c *engine.Command) error {
	id := stageID(m.Run, c.Node, c.Attempt)
	refused := func(err error) error {
		return s.store.Update(ctx, func(tx *store.Tx) error {
			e := engine.Event{
				Kind: engine.StageEnded, Node: c.Node, Attempt: c.Attempt,
				Result: &engine.Result{Failure: engine.FailureConfiguration, Message: err.Error()},
			}
			return errors.Join(tx.Untrack(m.Account, id), removeIn(tx, m, e))
		})
	}
	skip, err := s.superseded(ctx, m)
	if err != nil {
		return err
	}
	if skip {
		return s.remove(ctx, m)
	}
	run, doc, err := s.document(ctx, m.Account, m.Run)
	if errors.Is(err, ErrNotFound) || err == nil && !run.Ended.IsZero() { // the message is late
		if _, err := s.cfg.Manager.AbortStage(ctx, m.Account, id); err != nil && !settled(err) { // a dead process may have opened it
			return err
		}
		return s.store.Update(ctx, func(tx *store.Tx) error { return errors.Join(tx.Untrack(m.Account, id), removeIn(tx, m)) })
	}
	if err != nil {
		return err
	}
	table, err := s.tableFor(ctx, m.Account)
	if err != nil {
		return err
	}
	request, target, err := table.Stage(steps.Info{
		Stage: id, Account: m.Account, Run: m.Run, Number: run.Number, Codebase: doc.Run.Codebase, User: doc.Run.User,
		Triggered: doc.Run.TriggerType != "" && doc.Run.TriggerType != "MANUAL",
	}, c.Open)
	if err != nil {
		return refused(err)
	}
	request.Hold.LeaseMS = s.cfg.Lease.Milliseconds()
	request.Labels = map[string]string{runLabel: m.Run}
	encoded, err := json.Marshal(target)
	if err != nil {
		return fmt.Errorf("encoding the target of stage %s: %w", id, err)
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(tx.Holds(m),
			tx.Track(store.Stage{Account: m.Account, ID: id, Run: m.Run, Node: c.Node, Attempt: c.Attempt, Target: encoded}),
			tx.TrackSteps(m.Account, []store.Step{{Stage: id, ID: openedPart, Node: c.Node, Attempt: c.Attempt}}))
	})
	if err != nil {
		return err
	}
	s.own.add(id)
	node := engine.Step{Node: c.Node, Attempt: c.Attempt}
	switch _, err := s.cfg.Manager.SubmitStage(ctx, m.Account, request); {
	case errors.Is(err, manager.ErrInvalid):
		return refused(err)
	case err != nil && !errors.Is(err, manager.ErrConflict): // a conflict: it was opened before the settings changed
		return s.postpone(ctx, m, err, node)
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(tx.Opened(m.Account, id, time.Now()), removeIn(tx, m, taken(m, node)...))
	})
	if !errors.Is(err, store.ErrStale) {
		return err
	}
	// The claim has ended meanwhile. If the stage has ended too, and the manager had forgotten it, it is open again.
	if _, tracked := s.store.Stage(ctx, m.Account, id); errors.Is(tracked, store.ErrNotFound) {
		_, aborted := s.cfg.Manager.AbortStage(ctx, m.Account, id)
		err = errors.Join(err, aborted)
	}
	return err
}

// appendSteps appends steps to an open stage. A step that cannot be built, or that the manager
// refuses, fails; the others start.
func (s *Service) appendSteps(ctx context.Context, m store.Message, c *engine.Command) error {
	id := stageID(m.Run, c.Node, c.Attempt)
	skip, err := s.superseded(ctx, m)
	if err != nil {
		return err
	}
	if skip {
		return s.remove(ctx, m)
	}
	tracked, err := s.store.Stage(ctx, m.Account, id)
	if errors.Is(err, store.ErrNotFound) { // the stage has ended, which the run knows
		return s.store.Update(ctx, func(tx *store.Tx) error { return errors.Join(tx.Untrack(m.Account, id), tx.Done(m)) })
	}
	if err != nil {
		return err
	}
	var target steps.Target
	if err := json.Unmarshal(tracked.Target, &target); err != nil {
		return broken("decoding the target of stage %s: %w", id, err)
	}
	table, err := s.tableFor(ctx, m.Account)
	if err != nil {
		return err
	}
	var requests []api.StepRequest
	var rows []store.Step
	var failed []engine.Event
	for _, step := range c.Steps {
		request, err := table.Step(target, step)
		if err != nil {
			failed = append(failed, failedStep(step, engine.FailureConfiguration, err))
			continue
		}
		requests = append(requests, request)
		rows = append(rows, store.Step{Stage: id, ID: request.ID, Node: step.Node, Attempt: max(step.Attempt, 1)})
	}
	if len(requests) == 0 {
		return s.remove(ctx, m, failed...)
	}
	s.own.add(id, rows...)
	_, err = s.cfg.Manager.AppendSteps(ctx, m.Account, id, requests)
	if errors.Is(err, manager.ErrInvalid) {
		var refused []engine.Event
		refused, err = s.appendEach(ctx, m.Account, id, requests, rows)
		failed = append(failed, refused...)
	}
	if err != nil && !settled(err) {
		return s.postpone(ctx, m, err, c.Steps...)
	}
	failed = append(failed, taken(m, c.Steps...)...)
	if errors.Is(err, manager.ErrNotFound) { // renewLeases forgets the stage
		failed = append(failed, lostStage(c.Node, c.Attempt))
	}
	return s.remove(ctx, m, failed...)
}

// appendEach appends steps one by one, and returns the events of those that the manager refuses.
func (s *Service) appendEach(ctx context.Context, account, id string, requests []api.StepRequest, rows []store.Step) (failed []engine.Event, err error) {
	for i := range requests {
		_, err := s.cfg.Manager.AppendSteps(ctx, account, id, requests[i:i+1])
		switch {
		case errors.Is(err, manager.ErrInvalid):
			failed = append(failed, failedStep(engine.Step{Node: rows[i].Node, Attempt: rows[i].Attempt}, engine.FailureConfiguration, err))
		case err != nil && !settled(err):
			return nil, err
		}
	}
	return failed, nil
}

// settled reports whether a repetition of the call would have the same error. The end of the
// stage, which its events report, is the reason.
func settled(err error) bool {
	return errors.Is(err, manager.ErrNotFound) || errors.Is(err, manager.ErrNotOpen) || errors.Is(err, manager.ErrConflict)
}

func failedStep(step engine.Step, kind engine.FailureKind, err error) engine.Event {
	return engine.Event{
		Kind: engine.StepEnded, Node: step.Node, Attempt: max(step.Attempt, 1), Result: &engine.Result{Failure: kind, Message: err.Error()},
	}
}

// lostStage is the end of a stage that the manager does not know.
func lostStage(node string, attempt int) engine.Event {
	return engine.Event{
		Kind: engine.StageEnded, Node: node, Attempt: attempt,
		Result: &engine.Result{Failure: engine.FailureDelegateLost, Message: "the manager does not know the stage any more: its state was lost, or the stage was forgotten after its end"},
	}
}

// confirm ends a command that has no answer. If the manager does not know the stage or
// the step, its end is reported here.
func (s *Service) confirm(ctx context.Context, m store.Message, c *engine.Command, err error) error {
	switch {
	case errors.Is(err, manager.ErrNotFound) && c.Kind == engine.AbortStep:
		return s.remove(ctx, m, engine.Event{
			Kind: engine.StepEnded, Node: c.Node, Attempt: c.Attempt, Result: &engine.Result{Failure: engine.FailureAborted, Message: c.Reason},
		})
	case errors.Is(err, manager.ErrNotFound):
		e := lostStage(c.Node, c.Attempt)
		if c.Kind == engine.AbortStage {
			e.Result.Failure = engine.FailureAborted
		}
		return s.store.Update(ctx, func(tx *store.Tx) error {
			return errors.Join(tx.Untrack(m.Account, stageID(m.Run, c.Node, c.Attempt)), removeIn(tx, m, e))
		})
	case err != nil && !settled(err):
		return err
	}
	return s.remove(ctx, m)
}
