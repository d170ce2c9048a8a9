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
)

// Schedule submits a stage or a single task at certain times (rule Q6). Several
// managers on one store submit once for each time.
type Schedule struct {
	// ID is unique among the account's schedules.
	ID string `json:"id"`
	// Name is a description for people.
	Name string `json:"name,omitempty"`
	// Cron is the schedule's times. It has five fields (minute, hour, day of the
	// month, month, day of the week), or six with seconds in front. It may also be
	// @hourly, @daily, @weekly, @monthly, @yearly, or an interval like "@every 90m".
	Cron string `json:"cron"`
	// TimeZone is the IANA name of the time zone of Cron. Defaults to UTC. A time
	// that a clock change skips is left out that day. A time that comes twice counts
	// once.
	TimeZone string `json:"time_zone,omitempty"`
	// Missed decides about times that are more than a minute past, because no
	// manager was running. "once" submits one run for all of them, "skip" none, and
	// "all" one for each of the newest 100. Defaults to once.
	Missed string `json:"missed,omitempty"`
	// Overlap decides what happens if the previous run has not ended. "allow"
	// submits another one, "skip" does not. Defaults to allow.
	Overlap string `json:"overlap,omitempty"`
	// Paused disables the schedule. Times that pass while it is paused do not count
	// as missed.
	Paused bool `json:"paused,omitempty"`
	// Stage is the JSON of a [StageRequest], Task that of a [TaskRequest]. Exactly
	// one of them is set. The id of each run is the schedule's id and the time, like
	// nightly-20060102T150405Z.
	Stage json.RawMessage `json:"stage,omitempty"`
	Task  json.RawMessage `json:"task,omitempty"`

	// Next is when the schedule is due next. It is zero while the schedule is
	// paused. The manager sets Next and the fields below.
	Next time.Time `json:"next,omitzero"`
	// Last is the last time that was due. LastID is the id of its stage or task.
	// LastError is the reason if there is none.
	Last      time.Time `json:"last,omitzero"`
	LastID    string    `json:"last_id,omitempty"`
	LastError string    `json:"last_error,omitempty"`
}

// The values of Schedule.Missed and Schedule.Overlap.
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
func (s *Schedule) times() (cron.Schedule, *time.Location, error) {
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
func (s *Schedule) after(t time.Time) (time.Time, error) {
	times, zone, err := s.times()
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
func (m *Manager) SetSchedule(ctx context.Context, account string, s Schedule) (Schedule, error) {
	s.Missed, s.Overlap = cmp.Or(s.Missed, missedOnce), cmp.Or(s.Overlap, overlapAllow)
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	next, err := s.after(m.journal.Now())
	if err != nil {
		return Schedule{}, err
	}
	s.Next, s.Last, s.LastID, s.LastError = next, time.Time{}, "", ""
	if s.Paused {
		s.Next = time.Time{}
	}
	fire, err := m.submission(ctx, account, &s, next)
	if err != nil {
		return Schedule{}, err
	}
	m.discardSpans(fire)
	if err := s.checkMembers(); err != nil {
		return Schedule{}, err
	}
	if _, exists := m.core.schedule(key{account, s.ID}); !exists {
		release, err := m.budgets.take(account, amounts{budgetSchedules: 1})
		if err != nil {
			return Schedule{}, err
		}
		defer release()
	}
	r, err := m.applyCommand(ctx, &command{Account: account, SetSchedule: &s})
	if err != nil {
		return Schedule{}, err
	}
	return *r.schedule, nil
}

// checkMembers refuses unknown members in the stage or task, and an empty stage. It
// applies to new schedules only: saved schedules of an older version keep running.
func (s *Schedule) checkMembers() error {
	known := knownShapes()
	if err := cmp.Or(known.stage.check(s.Stage, "stage"), known.task.check(s.Task, "task")); err != nil || len(s.Stage) == 0 {
		return err
	}
	var req StageRequest
	if err := json.Unmarshal(s.Stage, &req); err != nil {
		return fmt.Errorf("%w: stage: %w", ErrInvalid, err)
	}
	return req.checkNotEmpty()
}

// setSchedule adds or replaces a schedule.
func (c *core) setSchedule(account string, s Schedule) (*Schedule, error) {
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

func (c *core) schedule(k key) (Schedule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schedules[k]; s != nil {
		return *s, true
	}
	return Schedule{}, false
}

// Schedule returns a schedule. It fails with [ErrNotFound].
func (m *Manager) Schedule(account, id string) (Schedule, error) {
	if s, ok := m.core.schedule(key{account, id}); ok {
		return s, nil
	}
	return Schedule{}, fmt.Errorf("schedule %q: %w", id, ErrNotFound)
}

// Schedules returns an account's schedules, ordered by id.
func (m *Manager) Schedules(account string) []Schedule {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Schedule{}
	for k, s := range c.schedules {
		if k.account == account {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b Schedule) int { return cmp.Compare(a.ID, b.ID) })
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
	cmd, made := &command{Account: account}, ""
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
