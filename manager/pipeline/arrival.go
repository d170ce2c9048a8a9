package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

// An event of a source is written to the database before the manager forgets it, as an object of kindArrival. Its run
// starts from there, so that an account that may not start a run now does not keep the events of the others.

const (
	kindArrival = "arrival" // the id consists of the trigger's id, a dot and the event's id

	// The bounds of the events of an account that wait for their runs.
	mostArrivals     = 5000
	mostArrivalBytes = 16 << 20
	// arrivalRetry is the pause before another try to start a run.
	arrivalRetry = 10 * time.Second
)

// arrival is an event of a source.
type arrival struct {
	Trigger string          `json:"trigger"`
	Event   string          `json:"event"` // its id
	Data    json.RawMessage `json:"data"`
}

// consumeSources takes the events of sources of a type until ctx ends.
func (s *Service) consumeSources(ctx context.Context, m perpetuals, taskType string) {
	err := m.ConsumePerpetual(ctx, taskType, s.takeArrivals)
	if err != nil && ctx.Err() == nil && !errors.Is(err, manager.ErrClosed) {
		s.cfg.Logger.Error().Err(err).Str("type", taskType).Msg("pipelines: the events of sources are not taken any more: start the service again")
	}
}

// takeArrivals writes events to the database. The manager repeats those of a call that fails.
func (s *Service) takeArrivals(ctx context.Context, events []manager.PerpetualEvent) error {
	type ref struct{ account, trigger string }
	full := map[ref]error{}
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		clear(full)
		for i := range events {
			e := &events[i]
			id, ok := strings.CutPrefix(e.Task, sourceTaskID(""))
			if !ok || !runName.MatchString(id) {
				continue // the task of an operator, without a trigger
			}
			problem, err := takeArrival(tx, e, id)
			if err != nil {
				return err
			}
			if problem != nil {
				full[ref{e.Account, id}] = problem
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for at, problem := range full {
		s.cfg.Logger.Error().Err(problem).Str("account", at.account).Str("trigger", at.trigger).Msg("pipelines: an event of a source is lost")
		s.noteProblem(ctx, at.account, at.trigger, problem)
	}
	return nil
}

// takeArrival writes an event. The problem is why it is lost.
func takeArrival(tx *store.Tx, e *manager.PerpetualEvent, id string) (problem, err error) {
	event, err := trigger.SourceID(e.Data)
	if err != nil {
		return err, nil //nolint:nilerr // it would be the same the next time
	}
	data, err := json.Marshal(arrival{Trigger: id, Event: event, Data: e.Data})
	if err != nil {
		return nil, err
	}
	o := store.Object{Account: e.Account, Kind: kindArrival, ID: id + "." + event, Updated: now(), Due: now(), Data: data}
	err = tx.Put(&o, store.Room{Count: mostArrivals, Bytes: mostArrivalBytes})
	if errors.Is(err, store.ErrFull) {
		return fmt.Errorf("the account has %d events of sources that wait for their runs: the others are lost", mostArrivals), nil
	}
	return nil, err
}

// startArrivals starts the runs of the events that are due.
func (s *Service) startArrivals(ctx context.Context, at time.Time) error {
	const batch = 50
	var failed error
	for ctx.Err() == nil {
		due, err := s.store.DueObjects(ctx, kindArrival, at, batch)
		if err != nil {
			return errors.Join(failed, err)
		}
		for i := range due {
			if err := s.startArrival(ctx, &due[i]); err != nil {
				failed = errors.Join(failed, fmt.Errorf("the event %s of account %s: %w", due[i].ID, due[i].Account, err))
			}
		}
		if len(due) < batch || failed != nil {
			break
		}
	}
	return failed
}

// startArrival starts the run of an event, or drops the event if its trigger does not want it any more.
func (s *Service) startArrival(ctx context.Context, o *store.Object) error {
	var a arrival
	if err := json.Unmarshal(o.Data, &a); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	var t savedTrigger
	_, err := s.object(ctx, o.Account, kindTrigger, a.Trigger, &t)
	switch {
	case errors.Is(err, ErrNotFound):
		return s.dropArrival(ctx, o, true)
	case err != nil:
		return err
	case !isSource(t.Kind) || t.Disabled:
		return s.dropArrival(ctx, o, true)
	}
	live, unwanted, err := s.prepareArrival(ctx, o.Account, &t, &a)
	switch {
	case err == nil && unwanted:
		return s.dropArrival(ctx, o, false)
	case err != nil && !errors.Is(err, ErrInvalid):
		return err
	}
	refused := err
	if refused == nil {
		err = s.store.Update(ctx, func(tx *store.Tx) error { return arrive(tx, o, &a, live) })
	}
	switch {
	case refused == nil && err == nil:
		s.started(live)
		return nil
	case errors.Is(err, errNotDue), errors.Is(err, errRepeated):
		return s.dropArrival(ctx, o, false)
	case errors.Is(err, errTooMany), errors.Is(err, ErrBudget):
		s.noteProblem(ctx, o.Account, a.Trigger, fmt.Errorf("%w: its events wait", err))
		return s.postponeArrival(ctx, o)
	case errors.Is(err, ErrInvalid):
		s.cfg.Logger.Warn().Err(err).Str("account", o.Account).Str("trigger", a.Trigger).Msg("a trigger started no run")
		s.noteProblem(ctx, o.Account, a.Trigger, err)
		return s.dropArrival(ctx, o, false)
	}
	return err
}

// prepareArrival returns the run of an event. Every value of the event comes from outside.
func (s *Service) prepareArrival(ctx context.Context, account string, t *savedTrigger, a *arrival) (live *preparedRun, unwanted bool, err error) {
	const mostText = 256 // as request.check
	req := t.request()
	if t.Kind == gitTrigger {
		e, values, err := trigger.Git(a.Data)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if t.ignores(e) != "" { // the trigger has changed meanwhile
			return nil, true, nil
		}
		req.Cause, req.Branch, req.Trigger, req.Codebase = "WEBHOOK", clip(printable(e.Branch), mostText), values, e.Codebase()
	} else {
		tag, values, err := trigger.Registry(a.Data)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if !source.Match(t.Tags, tag) && !slices.Contains(t.Source.Digests, tag) {
			return nil, true, nil
		}
		req.Cause, req.Trigger = "ARTIFACT", values
	}
	live, err = s.prepare(ctx, account, &req)
	if err != nil {
		return nil, false, err
	}
	return live, false, s.checkValues(live.doc)
}

// errRepeated means that an event has started its run before.
var errRepeated = errors.New("the event has started a run")

// arrive writes the run of an event, and removes the event.
func arrive(tx *store.Tx, seen *store.Object, a *arrival, live *preparedRun) error {
	o, err := tx.Object(seen.Account, kindTrigger, a.Trigger)
	if errors.Is(err, store.ErrNotFound) {
		return errNotDue
	}
	if err != nil {
		return err
	}
	var t savedTrigger
	if err := json.Unmarshal(o.Data, &t); err != nil {
		return fmt.Errorf("decoding trigger %s: %w", a.Trigger, err)
	}
	d := store.Delivery{Account: seen.Account, Hook: a.Trigger, Names: []string{"event/" + a.Event}, Run: live.run.ID, At: live.run.Created}
	n, err := tx.Deliveries(d.Account, d.Hook, d.At.Add(-time.Minute))
	if err != nil {
		return err
	}
	_, repeated, err := tx.Deliver(d)
	switch {
	case err != nil:
		return err
	case repeated:
		return errRepeated
	case n >= mostStarts:
		return errTooMany
	}
	if err := live.create(tx); err != nil {
		return err
	}
	if err := t.note(tx, o, time.Now(), live, nil); err != nil {
		return err
	}
	err = tx.Delete(seen.Account, seen.Kind, seen.ID)
	if errors.Is(err, store.ErrNotFound) {
		return errNotDue
	}
	return err
}

// dropArrival removes an event. If the trigger is unknown, its perpetual task is removed too.
func (s *Service) dropArrival(ctx context.Context, o *store.Object, unknown bool) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		err := tx.Delete(o.Account, o.Kind, o.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && unknown {
			id, _, _ := strings.Cut(o.ID, ".")
			return touchSource(tx, o.Account, id)
		}
		return err
	})
}

// postponeArrival makes an event due later.
func (s *Service) postponeArrival(ctx context.Context, seen *store.Object) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		o, err := tx.Object(seen.Account, seen.Kind, seen.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		o.Due = now().Add(arrivalRetry)
		return tx.Note(o)
	})
}
