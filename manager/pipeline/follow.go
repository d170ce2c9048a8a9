package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/task/stage"
)

// follower turns the events of an account's stages into messages.
type follower struct {
	service *Service
	account string
	log     zerolog.Logger
	// sent are the parts of a stage whose end was reported already, by the stage's id. It
	// only saves work: a run ignores what it knows.
	sent map[string]map[string]bool
	// later are the events that other processes report first, the oldest in front.
	later []otherPart
}

// follow follows the events of an account until ctx ends.
func (s *Service) follow(ctx context.Context, account string) {
	f := &follower{service: s, account: account, sent: map[string]map[string]bool{}, log: s.cfg.Logger.With().Str("account", account).Logger()}
	after := s.cfg.Manager.Events(account, 0).Last
	f.repeat(ctx, f.readAll)
	for {
		feed := s.cfg.Manager.Events(account, after)
		after = feed.Last
		if feed.Missed {
			f.later = nil
			f.repeat(ctx, f.readAll)
		} else {
			f.readEvents(ctx, f.divide(feed.Events, time.Now()))
		}
		timer := time.NewTimer(f.pause(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-feed.Changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// grace is the time in which the process that has opened a stage or appended a step reports its end. After it, the other
// processes look whether it has done so.
const grace = 2 * time.Second

// otherPart is an event that another process reports.
type otherPart struct {
	api.Event

	due time.Time
}

// divide returns the events that this process reports now: its own, and those that other processes have not reported in
// time.
func (f *follower) divide(events []api.Event, now time.Time) []api.Event {
	var due []api.Event
	for i := range events {
		switch e := &events[i]; {
		case e.Stage == "" || e.Step != "" && !e.Status.Ended():
		case !f.service.store.Shared() || f.service.own.has(e.Stage, e.Step):
			due = append(due, *e)
		default:
			f.later = append(f.later, otherPart{*e, now.Add(grace)})
		}
	}
	for len(f.later) > 0 && !f.later[0].due.After(now) {
		due = append(due, f.later[0].Event)
		f.later = f.later[1:]
	}
	return due
}

// pause returns the time until events of other processes are due.
func (f *follower) pause(now time.Time) time.Duration {
	if len(f.later) == 0 {
		return time.Hour
	}
	return f.later[0].due.Sub(now)
}

// readEvents reads the stages that events name. An event of a step costs as much in a stage of
// 1,000 steps as in a stage of one: the whole stage is read only for its own events.
func (f *follower) readEvents(ctx context.Context, events []api.Event) {
	whole, ended := map[string]bool{}, map[store.StepID]bool{}
	for i := range events {
		if e := &events[i]; e.Step == "" {
			whole[e.Stage] = true
		} else {
			ended[store.StepID{Stage: e.Stage, Step: e.Step}] = true
		}
	}
	var parts []store.Step
	for p := range ended {
		if !whole[p.Stage] && !f.sent[p.Stage][p.Step] {
			parts = append(parts, store.Step{Stage: p.Stage, ID: p.Step})
		}
	}
	for chunk := range slices.Chunk(parts, maxParts) {
		f.repeat(ctx, func(ctx context.Context) error { return f.readSteps(ctx, chunk, whole) })
	}
	if len(whole) > 0 {
		f.repeat(ctx, func(ctx context.Context) error { return f.read(ctx, slices.Sorted(maps.Keys(whole))) })
	}
}

// maxParts bounds the steps that one transaction reports.
const maxParts = 200

// readSteps reports ended steps, each with its own event. An init that has ended opens its stage, which is added to
// whole.
func (f *follower) readSteps(ctx context.Context, parts []store.Step, whole map[string]bool) error {
	found, err := f.service.store.Find(ctx, f.account, parts)
	if err != nil {
		return err
	}
	var ended []store.Step
	events := map[store.StepID]engine.Event{}
	for _, p := range parts {
		id := store.StepID{Stage: p.Stage, Step: p.ID}
		row, ok := found[id]
		if !ok { // an init, a cleanup or no stage of a run
			whole[p.Stage] = true
			continue
		}
		if row.Reported > 0 {
			continue
		}
		state, err := f.service.cfg.Manager.Step(f.account, p.Stage, p.ID)
		if errors.Is(err, manager.ErrNotFound) || err == nil && !state.Status.Ended() {
			continue
		}
		if err != nil {
			return err
		}
		r := resultOf(&state)
		ended = append(ended, row)
		events[id] = engine.Event{Kind: engine.StepEnded, Node: row.Node, Attempt: row.Attempt, Result: &r}
	}
	if len(ended) == 0 {
		return nil
	}
	err = f.service.store.Update(ctx, func(tx *store.Tx) error {
		first, err := tx.Report(f.account, ended)
		if err != nil {
			return err
		}
		var messages []store.Message
		for _, row := range ended {
			id := store.StepID{Stage: row.Stage, Step: row.ID}
			if !first[id] { // another process was faster
				continue
			}
			m, err := eventMessage(f.account, row.Run, "", events[id])
			if err != nil {
				return err
			}
			messages = append(messages, m)
		}
		return tx.Send(messages...)
	})
	if err != nil {
		return err
	}
	for _, row := range ended {
		f.mark(row.Stage, row.ID)
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
	repeat(ctx, &f.log, "pipelines: the events of the manager could not be processed and will be again", do)
}

// readAll reads all tracked stages.
func (f *follower) readAll(ctx context.Context) error {
	tracked, err := f.service.store.Stages(ctx, f.account)
	if err != nil {
		return err
	}
	known := idsOf(tracked)
	maps.DeleteFunc(f.sent, func(id string, _ map[string]bool) bool { return !known[id] }) // their ends may have been missed
	return f.readStages(ctx, tracked)
}

// read reads stages.
func (f *follower) read(ctx context.Context, ids []string) error {
	tracked, err := f.service.store.Stages(ctx, f.account, ids...)
	if err != nil {
		return err
	}
	known := idsOf(tracked)
	for _, id := range ids {
		if !known[id] { // it belongs to no run, or another process has reported its end
			f.forget(id)
		}
	}
	return f.readStages(ctx, tracked)
}

// forget forgets a stage that has ended.
func (f *follower) forget(id string) {
	delete(f.sent, id)
	f.service.own.take(store.StepID{Stage: id})
}

func idsOf(stages []store.Stage) map[string]bool {
	ids := make(map[string]bool, len(stages))
	for _, st := range stages {
		ids[st.ID] = true
	}
	return ids
}

// readStages reports the changes of tracked stages since the last call.
func (f *follower) readStages(ctx context.Context, tracked []store.Stage) error {
	const together = 20
	for chunk := range slices.Chunk(tracked, together) {
		var reports []stageReport
		for _, st := range chunk {
			state, err := f.service.cfg.Manager.Stage(f.account, st.ID)
			if errors.Is(err, manager.ErrNotFound) {
				continue // it is being opened, or was lost: renewLeases finds out
			}
			if err != nil {
				return err
			}
			rows, err := f.service.store.Steps(ctx, f.account, st.ID)
			if err != nil {
				return err
			}
			r := stageReport{Stage: st, ended: state.Status.Ended()}
			if r.events, r.parts = f.events(st, &state, rows); len(r.events) > 0 {
				reports = append(reports, r)
			}
		}
		if len(reports) == 0 {
			continue
		}
		if err := f.service.store.Update(ctx, func(tx *store.Tx) error { return reportStages(tx, reports) }); err != nil {
			return err
		}
		for _, r := range reports {
			if r.ended {
				f.forget(r.ID)
				continue
			}
			for _, p := range r.parts {
				f.mark(r.ID, p)
			}
		}
	}
	return nil
}

// stageReport is the news of a stage.
type stageReport struct {
	store.Stage

	events []engine.Event
	parts  []string // that the events are about
	ended  bool
}

func reportStages(tx *store.Tx, reports []stageReport) error {
	for _, r := range reports {
		if err := sendEvents(tx, r.Account, r.Run, "", r.events...); err != nil {
			return err
		}
		if r.ended {
			// A command that would open the stage once more must not do so: the manager may forget it soon.
			open := engine.Command{Kind: engine.OpenStage, Node: r.Node, Attempt: r.Attempt}
			if err := errors.Join(tx.Untrack(r.Account, r.ID), tx.Cancel(commandName(r.Account, r.Run, &open))); err != nil {
				return err
			}
			continue
		}
		var reported []store.Step
		for _, p := range r.parts {
			reported = append(reported, store.Step{Stage: r.ID, ID: p})
		}
		if _, err := tx.Report(r.Account, reported); err != nil {
			return err
		}
	}
	return nil
}

// openedPart is tracked as a step of a stage, for the event that its init has ended. No step has this id.
const openedPart = " opened"

// events returns the events of a stage that were not sent yet, with the names of their parts. The
// end of a stage carries the results of its steps: another worker may deliver it before the
// messages of the steps, and the steps must not fail with the stage then.
func (f *follower) events(st store.Stage, state *api.Stage, rows map[string]store.Step) (events []engine.Event, parts []string) {
	sent := func(part string) bool { return f.sent[st.ID][part] || rows[part].Reported > 0 }
	if state.Init.Status == api.Success && !sent(openedPart) {
		events = append(events, engine.Event{Kind: engine.StageOpened, Node: st.Node, Attempt: st.Attempt})
		parts = append(parts, openedPart)
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
		if !sent(part.ID) {
			events = append(events, engine.Event{Kind: engine.StepEnded, Node: row.Node, Attempt: row.Attempt, Result: &r})
			parts = append(parts, part.ID)
		}
	}
	if state.Status.Ended() {
		r := engine.Result{Message: state.Error}
		if state.Status != api.Success {
			r.Failure = kindOf(state.FailureKind)
		}
		// The event holds all results of steps: their own events may be handled after it.
		events = append(events, engine.Event{Kind: engine.StageEnded, Node: st.Node, Attempt: st.Attempt, Result: &r, Steps: results})
	}
	return events, parts
}

// resultOf returns the result of a step that has ended.
func resultOf(part *api.StepState) engine.Result {
	r := engine.Result{Message: part.Error}
	if part.Status != api.Success {
		r.Failure = kindOf(part.FailureKind)
	}
	if part.Status == api.Success || part.FailureKind == api.FailureExitCode {
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
	r.Report = reportOf(part)
	return r
}

// kindOf translates a manager's kind of failure.
func kindOf(kind api.FailureKind) engine.FailureKind {
	switch kind {
	case "":
		return engine.FailureUnknown
	case api.FailureLeaseEnded:
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
			return errors.Join(sendEvents(tx, st.Account, st.Run, "", e), tx.Untrack(st.Account, st.ID))
		})
	case errors.Is(err, manager.ErrNotOpen):
		f := &follower{service: s, account: st.Account, sent: map[string]map[string]bool{}}
		return f.readStages(ctx, []store.Stage{st})
	}
	return err
}
