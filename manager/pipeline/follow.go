package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/task/stage"
)

// follower turns the events of an account's stages into messages.
type follower struct {
	service *Service
	account string
	// sent are the parts of a stage whose end was reported already, by the stage's id. It
	// only saves work: a run ignores what it knows.
	sent map[string]map[string]bool
}

// follow follows the events of an account until ctx ends.
func (s *Service) follow(ctx context.Context, account string) {
	f := &follower{service: s, account: account, sent: map[string]map[string]bool{}}
	after := s.cfg.Manager.Events(account, 0).Last
	f.repeat(ctx, f.readAll)
	for {
		feed := s.cfg.Manager.Events(account, after)
		after = feed.Last
		if feed.Missed {
			f.repeat(ctx, f.readAll)
		} else {
			f.readEvents(ctx, feed.Events)
		}
		select {
		case <-ctx.Done():
			return
		case <-feed.Changed:
		}
	}
}

// readEvents reads the stages that events name. An event of a step costs as much in a stage of
// 1,000 steps as in a stage of one: the whole stage is read only for its own events.
func (f *follower) readEvents(ctx context.Context, events []manager.Event) {
	type part struct{ stage, step string }
	whole, ended := map[string]bool{}, map[part]bool{}
	for i := range events {
		switch e := &events[i]; {
		case e.Stage == "":
		case e.Step == "":
			whole[e.Stage] = true
		case e.Status.Ended():
			ended[part{e.Stage, e.Step}] = true
		}
	}
	var parts []store.Step
	for p := range ended {
		if !whole[p.stage] && !f.sent[p.stage][p.step] {
			parts = append(parts, store.Step{Stage: p.stage, ID: p.step})
		}
	}
	for chunk := range slices.Chunk(parts, maxParts) {
		f.repeat(ctx, func(ctx context.Context) error { return f.readSteps(ctx, chunk) })
	}
	for _, id := range slices.Sorted(maps.Keys(whole)) {
		f.repeat(ctx, func(ctx context.Context) error { return f.read(ctx, id) })
	}
}

// maxParts bounds the steps that one transaction reports.
const maxParts = 200

// readSteps reports ended steps, each with its own event. An init that has ended opens its stage.
func (f *follower) readSteps(ctx context.Context, parts []store.Step) error {
	type report struct {
		store.Step

		event engine.Event
	}
	var reports []report
	for _, p := range parts {
		row, err := f.service.store.Step(ctx, f.account, p.Stage, p.ID)
		if errors.Is(err, store.ErrNotFound) { // an init, a cleanup or no stage of a run
			if err := f.read(ctx, p.Stage); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		state, err := f.service.cfg.Manager.Step(f.account, p.Stage, p.ID)
		if errors.Is(err, manager.ErrNotFound) || err == nil && !state.Status.Ended() {
			continue
		}
		if err != nil {
			return err
		}
		r := resultOf(&state)
		reports = append(reports, report{row, engine.Event{Kind: engine.StepEnded, Node: row.Node, Attempt: row.Attempt, Result: &r}})
	}
	if len(reports) == 0 {
		return nil
	}
	err := f.service.store.Update(ctx, func(tx *store.Tx) error {
		for i := range reports {
			r := &reports[i]
			first, err := tx.Report(f.account, r.Stage, r.ID)
			if err != nil {
				return err
			}
			if !first { // another process was faster
				continue
			}
			if err := sendEvent(tx, f.account, r.Run, "", r.event, time.Time{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range reports {
		f.mark(reports[i].Stage, reports[i].ID)
	}
	return nil
}

// mark notes that the end of a part of a stage was reported.
func (f *follower) mark(stage, part string) {
	if f.sent[stage] == nil {
		f.sent[stage] = map[string]bool{}
	}
	f.sent[stage][part] = true
}

// repeat calls do until it succeeds or ctx ends.
func (f *follower) repeat(ctx context.Context, do func(context.Context) error) {
	for tries := 1; ; tries++ {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.service.cfg.Logger.Warn().Err(err).Str("account", f.account).Msg("pipelines: the events of the manager could not be processed and will be again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauseAfter(tries)):
		}
	}
}

// readAll reads all tracked stages.
func (f *follower) readAll(ctx context.Context) error {
	tracked, err := f.service.store.Stages(ctx, f.account)
	if err != nil {
		return err
	}
	for _, st := range tracked {
		if err := f.readTracked(ctx, st); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) read(ctx context.Context, id string) error {
	st, err := f.service.store.Stage(ctx, f.account, id)
	if errors.Is(err, store.ErrNotFound) { // it belongs to no run, or another process has reported its end
		delete(f.sent, id)
		return nil
	}
	if err != nil {
		return err
	}
	return f.readTracked(ctx, st)
}

// readTracked reports the changes of a stage since the last call.
func (f *follower) readTracked(ctx context.Context, st store.Stage) error {
	state, err := f.service.cfg.Manager.Stage(f.account, st.ID)
	if errors.Is(err, manager.ErrNotFound) {
		return nil // it is being opened, or was lost: renewLeases finds out
	}
	if err != nil {
		return err
	}
	rows, err := f.service.store.Steps(ctx, f.account, st.ID)
	if err != nil {
		return err
	}
	events, parts := f.events(st, &state, rows)
	if len(events) == 0 {
		return nil
	}
	err = f.service.store.Update(ctx, func(tx *store.Tx) error {
		for _, e := range events {
			if err := sendEvent(tx, st.Account, st.Run, "", e, time.Time{}); err != nil {
				return err
			}
		}
		if state.Status.Ended() {
			return tx.Untrack(st.Account, st.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if state.Status.Ended() {
		delete(f.sent, st.ID)
		return nil
	}
	for _, p := range parts {
		f.mark(st.ID, p)
	}
	return nil
}

// events returns the events of a stage that were not sent yet, with the names of their parts. The
// end of a stage carries the results of its steps: another worker may deliver it before the
// messages of the steps, and the steps must not fail with the stage then.
func (f *follower) events(st store.Stage, state *manager.Stage, rows map[string]store.Step) (events []engine.Event, parts []string) {
	const opened = " opened" // no step has this id
	sent := f.sent[st.ID]
	if state.Init.Status == manager.Success && !sent[opened] {
		events = append(events, engine.Event{Kind: engine.StageOpened, Node: st.Node, Attempt: st.Attempt})
		parts = append(parts, opened)
	}
	var results []engine.StepResult
	for i := range state.Steps {
		part := &state.Steps[i]
		row, ok := rows[part.ID]
		if !ok || !part.Status.Ended() {
			continue
		}
		r := resultOf(part)
		if state.Status.Ended() {
			results = append(results, engine.StepResult{Node: row.Node, Attempt: row.Attempt, Result: r})
			continue
		}
		if !sent[part.ID] {
			events = append(events, engine.Event{Kind: engine.StepEnded, Node: row.Node, Attempt: row.Attempt, Result: &r})
			parts = append(parts, part.ID)
		}
	}
	if state.Status.Ended() {
		r := engine.Result{Message: state.Error}
		if state.Status != manager.Success {
			r.Failure = kindOf(state.FailureKind)
		}
		// The event holds all results of steps: their own events may be handled after it.
		events = append(events, engine.Event{Kind: engine.StageEnded, Node: st.Node, Attempt: st.Attempt, Result: &r, Steps: results})
	}
	return events, parts
}

// resultOf returns the result of a step that has ended.
func resultOf(part *manager.StepState) engine.Result {
	r := engine.Result{Message: part.Error}
	if part.Status != manager.Success {
		r.Failure = kindOf(part.FailureKind)
	}
	if part.Status == manager.Success || part.FailureKind == manager.FailureExitCode {
		code := part.ExitCode
		r.ExitCode = &code
	}
	if len(part.OutputVars)+len(part.Outputs) > 0 {
		r.Outputs = maps.Clone(part.OutputVars)
		if r.Outputs == nil {
			r.Outputs = map[string]string{}
		}
		for _, o := range part.Outputs {
			if o.Type == stage.OutputSecret { // its value is hidden, and must not look like one
				delete(r.Outputs, o.Key)
				continue
			}
			r.Outputs[o.Key] = o.Value
		}
	}
	return r
}

// kindOf translates a manager's kind of failure.
func kindOf(kind manager.FailureKind) engine.FailureKind {
	switch kind {
	case "":
		return engine.FailureUnknown
	case manager.FailureLeaseEnded:
		return engine.FailureDelegateLost
	}
	return engine.FailureKind(kind)
}

// renewLeases renews the leases of open stages, and finds those that the manager has lost.
func (s *Service) renewLeases(ctx context.Context) error {
	return s.renewBefore(ctx, time.Now().Add(-s.cfg.Lease/3))
}

// renewBefore renews the leases that were last renewed before a time.
func (s *Service) renewBefore(ctx context.Context, before time.Time) error {
	const limit = 100
	now := time.Now()
	var failed error
	for {
		due, err := s.store.Renewable(ctx, before, now, limit)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, st := range due { // a failure must not end the leases of the other stages
			if err := s.renew(ctx, st); err != nil {
				failed = errors.Join(failed, fmt.Errorf("renewing the lease of stage %s: %w", st.ID, err))
			}
		}
		if len(due) < limit || ctx.Err() != nil {
			return failed
		}
	}
}

func (s *Service) renew(ctx context.Context, st store.Stage) error {
	_, err := s.cfg.Manager.RenewStage(ctx, st.Account, st.ID)
	switch {
	case errors.Is(err, manager.ErrNotFound):
		return s.store.Update(ctx, func(tx *store.Tx) error {
			e := lostStage(st.Node, st.Attempt)
			return errors.Join(sendEvent(tx, st.Account, st.Run, "", e, time.Time{}), tx.Untrack(st.Account, st.ID))
		})
	case errors.Is(err, manager.ErrNotOpen):
		f := &follower{service: s, account: st.Account, sent: map[string]map[string]bool{}}
		return f.readTracked(ctx, st)
	}
	return err
}
