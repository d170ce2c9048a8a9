package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// minEvery is the shortest time between two runs of a cron trigger.
const minEvery = time.Minute

// after returns the first time after at that a cron trigger has.
func (t *savedTrigger) after(at time.Time) (time.Time, error) {
	const mostCron = 256
	if len(t.Cron) > mostCron || len(t.TimeZone) > mostCron {
		return time.Time{}, fmt.Errorf("%w: cron and time_zone may have %d bytes each", ErrInvalid, mostCron)
	}
	zone, err := time.LoadLocation(cmp.Or(t.TimeZone, "UTC"))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: time_zone %q is unknown; it must be a name like Europe/Berlin", ErrInvalid, t.TimeZone)
	}
	times, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(t.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: cron %q: %w", ErrInvalid, t.Cron, err)
	}
	switch times := times.(type) {
	case cron.ConstantDelaySchedule:
		if times.Delay < minEvery {
			return time.Time{}, fmt.Errorf("%w: cron %q: use @every %s or more", ErrInvalid, t.Cron, minEvery)
		}
	case *cron.SpecSchedule:
		if times.Location != time.Local {
			return time.Time{}, fmt.Errorf("%w: cron %q names a time zone; put it into time_zone", ErrInvalid, t.Cron)
		}
		times.Location = zone
	}
	next := times.Next(at.In(zone))
	if next.IsZero() {
		return next, fmt.Errorf("%w: cron %q never matches a time", ErrInvalid, t.Cron)
	}
	return next.UTC(), nil
}

// fireDue starts the runs of the cron triggers that are due. Of the times that passed since a trigger was last looked
// at, one counts. The row in the database is locked, so that one of several services starts the run.
func (s *Service) fireDue(ctx context.Context, at time.Time) error {
	const batch = 50
	var failed error
	for {
		due, err := s.store.DueObjects(ctx, kindTrigger, at, batch)
		if err != nil {
			return errors.Join(failed, err)
		}
		done := 0
		for i := range due { // a failure must not keep the other triggers
			if err := s.fire(ctx, &due[i], at); err != nil {
				failed = errors.Join(failed, fmt.Errorf("the trigger %s of account %s: %w", due[i].ID, due[i].Account, err))
				continue
			}
			done++
		}
		if done < batch || ctx.Err() != nil {
			return failed
		}
	}
}

// fire starts the run of a trigger that was due when it was read.
func (s *Service) fire(ctx context.Context, seen *store.Object, at time.Time) error {
	var t savedTrigger
	if err := json.Unmarshal(seen.Data, &t); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	req := t.request()
	req.Cause, req.Trigger = "SCHEDULER_CRON", map[string]any{"type": "Scheduled"}
	live, refused := s.prepare(ctx, seen.Account, &req)
	if refused != nil && !errors.Is(refused, ErrInvalid) {
		return refused
	}
	write := func(refused error) error {
		return s.store.Update(ctx, func(tx *store.Tx) error { return fired(tx, seen, at, live, refused) })
	}
	err := write(refused)
	if errors.Is(err, ErrInvalid) { // the engine refuses to start it
		refused = err
		err = write(refused)
	}
	switch {
	case errors.Is(err, errNotDue):
		return nil
	case err != nil:
		return err
	case refused != nil:
		s.cfg.Logger.Warn().Err(refused).Str("account", seen.Account).Str("trigger", seen.ID).Msg("a trigger started no run")
		return nil
	}
	s.started(live)
	return nil
}

// errNotDue means that another process was first, or that the trigger has changed.
var errNotDue = errors.New("the trigger is not due any more")

// fired writes the run of a cron trigger, and its next time.
func fired(tx *store.Tx, seen *store.Object, at time.Time, live *preparedRun, refused error) error {
	o, err := tx.Object(seen.Account, seen.Kind, seen.ID)
	if errors.Is(err, store.ErrNotFound) || err == nil && (o.Version != seen.Version || !o.Due.Equal(seen.Due)) {
		return errNotDue
	}
	if err != nil {
		return err
	}
	var t savedTrigger
	if err := json.Unmarshal(o.Data, &t); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	o.Due, err = t.after(at)
	if err != nil { // the zones of this machine have changed
		o.Due, refused = time.Time{}, err
	}
	if refused == nil {
		if err := live.create(tx); err != nil {
			return err
		}
	}
	return t.note(tx, o, at, live, refused)
}

// note writes the result of a start.
func (t *savedTrigger) note(tx *store.Tx, o *store.Object, at time.Time, live *preparedRun, refused error) error {
	t.Last, t.LastError = at.UTC().Truncate(time.Millisecond), ""
	if refused != nil {
		t.LastError = clip(refused.Error(), mostReason)
	} else {
		t.LastRun = live.run.ID
	}
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encoding trigger %s: %w", t.ID, err)
	}
	o.Data = data
	return tx.Note(o)
}

// mostReason bounds the reason why a trigger started nothing, in bytes.
const mostReason = 4096

// clip shortens a text to a number of bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
