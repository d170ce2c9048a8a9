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
	"github.com/rs/zerolog"
)

// Schedule submits a stage or a single task again and again (SPEC Q6). Each time
// it is submitted once, however many managers there are.
type Schedule struct {
	// ID is unique among the account's schedules.
	ID string `json:"id"`
	// Name is for people.
	Name string `json:"name,omitempty"`
	// Cron says when: five fields (minute, hour, day of the month, month, day of the
	// week), six with seconds before them, or @hourly, @daily, @weekly, @monthly,
	// @yearly, "@every 90m".
	Cron string `json:"cron"`
	// TimeZone is that of Cron, by its IANA name. Defaults to UTC. A time that a
	// clock change leaves out does not come that day; one that comes twice counts
	// once.
	TimeZone string `json:"time_zone,omitempty"`
	// Missed says what becomes of times at which no manager was there, more than a
	// minute long: "once", one run for all of them; "skip", none; "all", one for
	// each, at most 100. Defaults to once.
	Missed string `json:"missed,omitempty"`
	// Overlap says what happens when the run before has not ended: "allow" another
	// one, or "skip" it. Defaults to allow.
	Overlap string `json:"overlap,omitempty"`
	// Paused schedules submit nothing. Times that pass meanwhile do not count as
	// missed.
	Paused bool `json:"paused,omitempty"`
	// Stage is the JSON of a [StageRequest], or Task that of a [TaskRequest]: one of
	// them. Their id is the schedule's and the time, like nightly-20060102T150405Z.
	Stage json.RawMessage `json:"stage,omitempty"`
	Task  json.RawMessage `json:"task,omitempty"`

	// Next is when it is due, zero while it is paused. The manager sets it and what
	// follows.
	Next time.Time `json:"next,omitzero"`
	// Last is the time that was due last, and LastID the stage or task that was
	// submitted for it, unless LastError says why there was none.
	Last      time.Time `json:"last,omitzero"`
	LastID    string    `json:"last_id,omitempty"`
	LastError string    `json:"last_error,omitempty"`
}

// The values of [Schedule.Missed] and [Schedule.Overlap].
const (
	MissedOnce   = "once"
	MissedSkip   = "skip"
	MissedAll    = "all"
	OverlapAllow = "allow"
	OverlapSkip  = "skip"
)

const (
	// lateness is how late a time may be met and not be missed.
	lateness = time.Minute
	// maxMissed bounds the runs for times that were missed.
	maxMissed = 100
	// maxSchedules bounds those of all accounts: each command looks at them all.
	maxSchedules = 10_000
)

var cronSyntax = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// after is the first time that is due after another one, zero if there is none.
func (s *Schedule) after(t time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(cmp.Or(s.TimeZone, "UTC"))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: time_zone %q is unknown; it may be a name like Europe/Berlin", ErrInvalid, s.TimeZone)
	}
	times, err := cronSyntax.Parse(s.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: cron %q: %w", ErrInvalid, s.Cron, err)
	}
	if spec, ok := times.(*cron.SpecSchedule); ok {
		if spec.Location != time.Local {
			return time.Time{}, fmt.Errorf("%w: cron %q names a time zone; put it into time_zone", ErrInvalid, s.Cron)
		}
		spec.Location = zone
	}
	next := times.Next(t.In(zone))
	if next.IsZero() {
		return next, fmt.Errorf("%w: cron %q never comes", ErrInvalid, s.Cron)
	}
	return next.UTC(), nil
}

// SetSchedule adds a schedule, or replaces the one with its id. It fails with
// [ErrInvalid].
func (m *Manager) SetSchedule(ctx context.Context, account string, s Schedule) (Schedule, error) {
	if s.ID == "" {
		return Schedule{}, fmt.Errorf("%w: the schedule has no id", ErrInvalid)
	}
	if err := checkID("the id", s.ID); err != nil {
		return Schedule{}, err
	}
	s.Missed, s.Overlap = cmp.Or(s.Missed, MissedOnce), cmp.Or(s.Overlap, OverlapAllow)
	if !slices.Contains([]string{MissedOnce, MissedSkip, MissedAll}, s.Missed) {
		return Schedule{}, fmt.Errorf("%w: missed is %q; it may be once, skip or all", ErrInvalid, s.Missed)
	}
	if !slices.Contains([]string{OverlapAllow, OverlapSkip}, s.Overlap) {
		return Schedule{}, fmt.Errorf("%w: overlap is %q; it may be allow or skip", ErrInvalid, s.Overlap)
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
	m.discard(fire)
	if err := s.checkMembers(); err != nil {
		return Schedule{}, err
	}
	r, err := m.do(ctx, &command{Account: account, SetSchedule: &s})
	if err != nil {
		return Schedule{}, err
	}
	return *r.schedule, nil
}

// checkMembers refuses unknown members in the stage or task, and an empty stage. A
// schedule that an older version has saved is not checked: it goes on as it was.
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

// fireCommand has a schedule submit what is due.
type fireCommand struct {
	ID string `json:"id"`
	// Due is the time that it is for, and Next the one that comes after it. They were
	// found out by the manager that sends this: time zones are no part of the state.
	Due  time.Time `json:"due"`
	Next time.Time `json:"next"`
	// Stage or Task is what to submit; neither for a time that is left out.
	Stage *run               `json:"stage,omitempty"`
	Task  *submitTaskCommand `json:"task,omitempty"`
	Error string             `json:"error,omitempty"`
}

// submission makes what a schedule submits for a time.
func (m *Manager) submission(ctx context.Context, account string, s *Schedule, due time.Time) (*fireCommand, error) {
	if (len(s.Stage) == 0) == (len(s.Task) == 0) {
		return nil, fmt.Errorf("%w: a schedule needs a stage or a task, one of them", ErrInvalid)
	}
	f := &fireCommand{ID: s.ID, Due: due}
	id := s.ID + "-" + due.UTC().Format("20060102T150405Z")
	if len(s.Stage) > 0 {
		var req StageRequest
		if err := json.Unmarshal(s.Stage, &req); err != nil {
			return nil, fmt.Errorf("%w: stage: %w", ErrInvalid, err)
		}
		req.ID = id
		var err error
		f.Stage, err = m.newRun(ctx, account, req)
		return f, err
	}
	var req TaskRequest
	if err := json.Unmarshal(s.Task, &req); err != nil {
		return nil, fmt.Errorf("%w: task: %w", ErrInvalid, err)
	}
	req.Task.ID, req.Sync = id, false
	var err error
	if f.Task, err = m.newTask(account, &req); err == nil {
		f.Task.Single.Trace = m.begin(ctx, "task", account, id, m.journal.Now())
		f.Task.Single.Trace.join(f.Task.Task)
	}
	return f, err
}

// discard drops what was prepared and is not submitted.
func (m *Manager) discard(f *fireCommand) {
	if f.Stage != nil {
		m.drop(f.Stage.trace)
	}
	if f.Task != nil {
		m.drop(f.Task.Single.Trace)
	}
}

// fireDue has all schedules that are due submit what they are to. Other managers
// may be doing the same: the first one counts. It is false when the store did not
// let it.
func (m *Manager) fireDue(ctx context.Context) bool {
	for _, k := range m.core.due(m.journal.Now()) {
		if err := m.fire(ctx, k); err != nil {
			m.cfg.Logger.Warn().Err(err).Str("account_id", k.account).Str("schedule_id", k.id).Msg("a schedule could not submit")
			return false
		}
	}
	return true
}

// fire does it for one schedule, until nothing is due.
func (m *Manager) fire(ctx context.Context, k key) error {
	for range maxMissed + 2 {
		s, ok := m.core.schedule(k)
		now := m.journal.Now()
		if !ok || s.Next.IsZero() || s.Next.After(now) {
			return nil
		}
		f, err := m.plan(ctx, k.account, &s, now)
		if err != nil {
			return err
		}
		r, err := m.do(ctx, &command{Account: k.account, Fire: f})
		if err != nil || r.existed {
			m.discard(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plan decides what becomes of the time at which a schedule was due.
func (m *Manager) plan(ctx context.Context, account string, s *Schedule, now time.Time) (*fireCommand, error) {
	late := now.Sub(s.Next) > lateness
	next, err := s.after(now)
	if err != nil {
		return nil, err
	}
	switch {
	case late && s.Missed == MissedSkip:
		return &fireCommand{ID: s.ID, Due: s.Next, Next: next, Error: "no manager was there"}, nil
	case s.Missed == MissedAll:
		if next, err = s.following(now); err != nil {
			return nil, err
		}
	}
	f, err := m.submission(ctx, account, s, s.Next)
	if err != nil { // it was right when it was set
		f = &fireCommand{ID: s.ID, Due: s.Next, Error: err.Error()}
	}
	f.Next = next
	return f, nil
}

// following is the time after the one that is due, but leaves out those that are
// more than maxMissed ago.
func (s *Schedule) following(now time.Time) (time.Time, error) {
	next, err := s.after(s.Next)
	if err != nil || next.After(now) {
		return next, err
	}
	newest := make([]time.Time, 0, maxMissed)
	for t := next; !t.After(now); {
		if len(newest) == maxMissed {
			newest = append(newest[:0], newest[1:]...)
		}
		newest = append(newest, t)
		if t, err = s.after(t); err != nil {
			return t, err
		}
	}
	return newest[0], nil
}

// fire carries out a fireCommand. It existed when another manager was first, or
// nothing was submitted.
func (c *core) fire(account string, f *fireCommand) (existed bool) {
	s := c.schedules[key{account, f.ID}]
	if s == nil || !s.Next.Equal(f.Due) {
		return true
	}
	s.Next, s.Last, s.LastError = f.Next, f.Due, f.Error
	if s.Overlap == OverlapSkip && s.LastID != "" && c.runs(account, s.LastID) {
		s.LastError = "the run before has not ended"
	}
	if s.LastError != "" {
		c.note(zerolog.WarnLevel, "a schedule has submitted nothing: "+s.LastError, note{account: account})
		return true
	}
	var err error
	if f.Stage != nil {
		s.LastID = f.Stage.ID
		existed, err = c.submitStage(account, f.Stage)
	} else {
		s.LastID = f.Task.Task.ID
		existed, err = c.submitTask(account, f.Task)
	}
	if err != nil {
		s.LastError = err.Error()
	}
	return existed || err != nil
}

// runs tells whether a stage or single task has not ended.
func (c *core) runs(account, id string) bool {
	if n := c.stages[key{account, id}]; n != nil {
		return !n.Status.Ended()
	}
	t := c.tasks[key{account, id}]
	if t == nil {
		return false
	}
	s, err := c.queue.Task(account, cmp.Or(t.Current, id))
	return err == nil && s.Ended.IsZero()
}

// setSchedule adds or replaces a schedule.
func (c *core) setSchedule(account string, s Schedule) (*Schedule, error) {
	k := key{account, s.ID}
	if old := c.schedules[k]; old != nil {
		s.Last, s.LastID, s.LastError = old.Last, old.LastID, old.LastError
	} else if len(c.schedules) >= maxSchedules {
		return nil, fmt.Errorf("%w: there are %d schedules already; remove some", ErrInvalid, maxSchedules)
	}
	c.schedules[k] = &s
	c.poke()
	shown := s
	return &shown, nil
}

// poke makes the manager's loop look at what is due.
func (c *core) poke() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// due are the schedules that are due.
func (c *core) due(now time.Time) []key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []key
	for k, s := range c.schedules {
		if !s.Next.IsZero() && !s.Next.After(now) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, key.compare)
	return out
}

// nextSchedule is when a schedule is due next; false is never.
func (c *core) nextSchedule() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.schedules {
		if !s.Next.IsZero() && (!ok || s.Next.Before(at)) {
			at, ok = s.Next, true
		}
	}
	return at, ok
}

func (c *core) schedule(k key) (Schedule, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schedules[k]; s != nil {
		return *s, true
	}
	return Schedule{}, false
}

// Schedule is a schedule. It fails with [ErrNotFound].
func (m *Manager) Schedule(account, id string) (Schedule, error) {
	if s, ok := m.core.schedule(key{account, id}); ok {
		return s, nil
	}
	return Schedule{}, fmt.Errorf("schedule %q: %w", id, ErrNotFound)
}

// Schedules are an account's schedules, by their ids.
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

// DeleteSchedule removes a schedule. What it has submitted goes on. It fails with
// [ErrNotFound].
func (m *Manager) DeleteSchedule(ctx context.Context, account, id string) error {
	_, err := m.do(ctx, &command{Account: account, DeleteSchedule: &idCommand{id}})
	return err
}

// TriggerSchedule submits what a schedule submits, now and besides its times, and
// returns the id of the stage or task. It fails with [ErrNotFound].
func (m *Manager) TriggerSchedule(ctx context.Context, account, id string) (string, error) {
	s, err := m.Schedule(account, id)
	if err != nil {
		return "", err
	}
	f, err := m.submission(ctx, account, &s, m.journal.Now())
	if err != nil {
		return "", err
	}
	cmd, made := &command{Account: account}, ""
	if f.Stage != nil {
		made, cmd.SubmitStage = f.Stage.ID, f.Stage
	} else {
		made, cmd.SubmitTask = f.Task.Task.ID, f.Task
	}
	r, err := m.do(ctx, cmd)
	if err != nil || r.existed {
		m.discard(f)
	}
	if errors.Is(err, ErrConflict) {
		return made, nil // twice in a second
	}
	return made, err
}
