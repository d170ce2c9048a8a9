package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/delegate-io/dlite/manager/api"
)

// The values of api.Schedule.Missed and api.Schedule.Overlap.
const (
	missedOnce   = "once"
	missedSkip   = "skip"
	missedAll    = "all"
	overlapAllow = "allow"
	overlapSkip  = "skip"
)

const (
	// lateness is how late a run may start without counting as missed.
	lateness = time.Minute
	// maxMissed is the largest number of runs for missed times.
	maxMissed = 100
	// maxSchedules bounds the schedules of all accounts, because the loop looks at
	// all of them.
	maxSchedules = 10_000
)

var cronSyntax = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// times returns the schedule's times, and their zone.
func scheduleTimes(s *api.Schedule) (cron.Schedule, *time.Location, error) {
	zone, err := time.LoadLocation(cmp.Or(s.TimeZone, "UTC"))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: time_zone %q is unknown; it must be a name like Europe/Berlin", ErrInvalid, s.TimeZone)
	}
	times, err := cronSyntax.Parse(s.Cron)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: cron %q: %w", ErrInvalid, s.Cron, err)
	}
	if spec, ok := times.(*cron.SpecSchedule); ok {
		if spec.Location != time.Local {
			return nil, nil, fmt.Errorf("%w: cron %q names a time zone; put it into time_zone", ErrInvalid, s.Cron)
		}
		spec.Location = zone
	}
	return times, zone, nil
}

// after returns the first time after t at which the schedule is due.
func nextTime(s *api.Schedule, t time.Time) (time.Time, error) {
	times, zone, err := scheduleTimes(s)
	if err != nil {
		return time.Time{}, err
	}
	next := times.Next(t.In(zone))
	if next.IsZero() {
		return next, fmt.Errorf("%w: cron %q never matches a time", ErrInvalid, s.Cron)
	}
	return next.UTC(), nil
}

// SetSchedule adds a schedule, or replaces the one with its id. It fails with
// [ErrInvalid] and [ErrBudget].
func (m *Manager) SetSchedule(ctx context.Context, account string, s api.Schedule) (api.Schedule, error) {
	s.Missed, s.Overlap = cmp.Or(s.Missed, missedOnce), cmp.Or(s.Overlap, overlapAllow)
	if err := checkSchedule(&s); err != nil {
		return api.Schedule{}, err
	}
	next, err := nextTime(&s, m.journal.Now())
	if err != nil {
		return api.Schedule{}, err
	}
	s.Next, s.Last, s.LastID, s.LastError = next, time.Time{}, "", ""
	if s.Paused {
		s.Next = time.Time{}
	}
	fire, err := m.submission(ctx, account, &s, next)
	if err != nil {
		return api.Schedule{}, err
	}
	m.discardSpans(fire)
	if err := checkMembers(&s); err != nil {
		return api.Schedule{}, err
	}
	if _, exists := m.core.schedule(key{account, s.ID}); !exists {
		release, err := m.budgets.take(account, amounts{budgetSchedules: 1})
		if err != nil {
			return api.Schedule{}, err
		}
		defer release()
	}
	r, err := m.applyCommand(ctx, &command{Account: account, SetSchedule: &s})
	if err != nil {
		return api.Schedule{}, err
	}
	return *r.schedule, nil
}

// checkMembers refuses unknown members in the stage or task, and an empty stage. It
// applies to new schedules only: saved schedules of an older version keep running.
func checkMembers(s *api.Schedule) error {
	known := knownShapes()
	if err := cmp.Or(known.stage.check(s.Stage, "stage"), known.task.check(s.Task, "task")); err != nil || len(s.Stage) == 0 {
		return err
	}
	var req api.StageRequest
	if err := json.Unmarshal(s.Stage, &req); err != nil {
		return fmt.Errorf("%w: stage: %w", ErrInvalid, err)
	}
	return checkNotEmpty(&req)
}

// setSchedule adds or replaces a schedule.
func (c *core) setSchedule(account string, s api.Schedule) (*api.Schedule, error) {
	k := key{account, s.ID}
	if old := c.schedules[k]; old != nil {
		s.Last, s.LastID, s.LastError = old.Last, old.LastID, old.LastError
	} else if len(c.schedules) >= maxSchedules {
		return nil, fmt.Errorf("%w: schedules of all accounts: there are %d", ErrBudget, maxSchedules)
	} else {
		c.occupy(account, amounts{budgetSchedules: 1}, 1)
	}
	c.schedules[k] = &s
	c.wakeLoop()
	shown := s
	return &shown, nil
}

// wakeLoop makes the manager's loop check for due work.
func (c *core) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *core) schedule(k key) (api.Schedule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schedules[k]; s != nil {
		return *s, true
	}
	return api.Schedule{}, false
}

// Schedule returns a schedule. It fails with [ErrNotFound].
func (m *Manager) Schedule(account, id string) (api.Schedule, error) {
	if s, ok := m.core.schedule(key{account, id}); ok {
		return s, nil
	}
	return api.Schedule{}, fmt.Errorf("schedule %q: %w", id, ErrNotFound)
}

// Schedules returns an account's schedules, ordered by id.
func (m *Manager) Schedules(account string) []api.Schedule {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []api.Schedule{}
	for k, s := range c.schedules {
		if k.account == account {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b api.Schedule) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// DeleteSchedule removes a schedule. Its submitted stages and tasks continue. It
// fails with [ErrNotFound].
func (m *Manager) DeleteSchedule(ctx context.Context, account, id string) error {
	_, err := m.applyCommand(ctx, &command{Account: account, DeleteSchedule: &idCommand{id}})
	return err
}

// TriggerSchedule submits the schedule's stage or task now, in addition to its
// times. It returns the id of the stage or task. It fails with [ErrNotFound]
// and [ErrBudget].
func (m *Manager) TriggerSchedule(ctx context.Context, account, id string) (string, error) {
	s, err := m.Schedule(account, id)
	if err != nil {
		return "", err
	}
	f, err := m.submission(ctx, account, &s, m.journal.Now())
	if err != nil {
		return "", err
	}
	release, err := m.budgets.take(account, f.amounts())
	if err != nil {
		m.discardSpans(f)
		return "", err
	}
	defer release()
	cmd, made := &command{Account: account, OfSchedule: id}, ""
	if f.Stage != nil {
		made, cmd.SubmitStage = f.Stage.ID, f.Stage
	} else {
		made, cmd.SubmitTask = f.Task.Task.ID, f.Task
	}
	r, err := m.applyCommand(ctx, cmd)
	if err != nil || r.existed {
		m.discardSpans(f)
	}
	if errors.Is(err, ErrConflict) {
		return made, nil // a second trigger within one second has the same id
	}
	return made, err
}
