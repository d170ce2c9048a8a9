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

	"github.com/delegate-io/dlite/manager/api"
)

// fireCommand makes a schedule submit its stage or task.
type fireCommand struct {
	ID string `json:"id"`
	// Due is the time that the command is for. Next is the time after it. The sender
	// computes both, because the rules for time zones differ between machines.
	Due  time.Time `json:"due"`
	Next time.Time `json:"next"`
	// Stage or Task is the submission. Neither is set for a time that is left out.
	Stage *run               `json:"stage,omitempty"`
	Task  *submitTaskCommand `json:"task,omitempty"`
	Error string             `json:"error,omitempty"`
}

// submission returns the command by which a schedule submits for a time.
func (m *Manager) submission(ctx context.Context, account string, s *api.Schedule, due time.Time) (*fireCommand, error) {
	if (len(s.Stage) == 0) == (len(s.Task) == 0) {
		return nil, fmt.Errorf("%w: a schedule needs a stage or a task, one of them", ErrInvalid)
	}
	f := &fireCommand{ID: s.ID, Due: due}
	id := s.ID + "-" + due.UTC().Format("20060102T150405Z")
	if len(s.Stage) > 0 {
		var req api.StageRequest
		if err := json.Unmarshal(s.Stage, &req); err != nil {
			return nil, fmt.Errorf("%w: stage: %w", ErrInvalid, err)
		}
		if req.Hold != nil {
			return nil, fmt.Errorf("%w: stage.hold: a schedule cannot hold a stage open", ErrInvalid)
		}
		req.ID = id
		var err error
		if f.Stage, err = m.newRun(ctx, account, req); err != nil {
			return nil, fmt.Errorf("stage: %w", err)
		}
		return f, nil
	}
	var req TaskRequest
	if err := json.Unmarshal(s.Task, &req); err != nil {
		return nil, fmt.Errorf("%w: task: %w", ErrInvalid, err)
	}
	req.Task.ID, req.Sync = id, false
	var err error
	if f.Task, err = m.newTask(account, &req); err != nil {
		return nil, fmt.Errorf("task: %w", err)
	}
	f.Task.Single.Trace = m.startSpan(ctx, "task", account, id, m.journal.Now())
	f.Task.Single.Trace.joinTask(f.Task.Task)
	return f, nil
}

// amounts returns the usage of the submission.
func (f *fireCommand) amounts() amounts {
	switch {
	case f.Stage != nil:
		return workAmounts(f.Stage.size)
	case f.Task != nil:
		return workAmounts(f.Task.Single.Size)
	}
	return amounts{}
}

// discardSpans drops the spans of a submission that is not sent.
func (m *Manager) discardSpans(f *fireCommand) {
	if f.Stage != nil {
		m.dropSpan(f.Stage.Trace)
	}
	if f.Task != nil {
		m.dropSpan(f.Task.Single.Trace)
	}
}

// fireDue fires all schedules that are due. It reports false if the store failed.
func (m *Manager) fireDue(ctx context.Context) bool {
	for _, k := range m.core.dueSchedules(m.journal.Now()) {
		if err := m.fireSchedule(ctx, k); err != nil {
			m.cfg.Logger.Warn().Err(err).Str("account_id", k.account).Str("schedule_id", k.id).Msg("cannot submit the stage or task of a schedule")
			return false
		}
	}
	return true
}

// fireSchedule fires one schedule until it is no longer due.
func (m *Manager) fireSchedule(ctx context.Context, k key) error {
	for range maxMissed + 2 {
		s, ok := m.core.schedule(k)
		now := m.journal.Now()
		if !ok || s.Next.IsZero() || s.Next.After(now) {
			return nil
		}
		f, err := m.nextFire(ctx, k.account, &s, now)
		if err != nil {
			return err
		}
		release, err := m.budgets.take(k.account, f.amounts())
		if err != nil {
			m.discardSpans(f)
			f, release = &fireCommand{ID: f.ID, Due: f.Due, Next: f.Next, Error: err.Error()}, func() {}
		}
		r, err := m.applyCommand(ctx, &command{Account: k.account, Fire: f})
		release()
		if err != nil || r.existed {
			m.discardSpans(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextFire returns the command for the time at which a schedule is due.
func (m *Manager) nextFire(ctx context.Context, account string, s *api.Schedule, now time.Time) (*fireCommand, error) {
	late := now.Sub(s.Next) > lateness
	next, err := nextTime(s, now)
	if err != nil {
		return nil, err
	}
	switch {
	case late && s.Missed == missedSkip:
		return &fireCommand{ID: s.ID, Due: s.Next, Next: next, Error: "no manager was running"}, nil
	case s.Missed == missedAll:
		if next, err = followingTime(s, now); err != nil {
			return nil, err
		}
	}
	f, err := m.submission(ctx, account, s, s.Next)
	if err != nil { // the submission was valid when the schedule was set
		f = &fireCommand{ID: s.ID, Due: s.Next, Error: err.Error()}
	}
	f.Next = next
	return f, nil
}

// followingTime returns the time after the one that is due. It skips all but the newest
// maxMissed missed times. It looks back from now, further each time, because an outage
// may contain millions of times.
func followingTime(s *api.Schedule, now time.Time) (time.Time, error) {
	next, err := nextTime(s, s.Next)
	if err != nil || next.After(now) {
		return next, err
	}
	times, zone, err := scheduleTimes(s)
	if err != nil {
		return next, err
	}
	if every, ok := times.(cron.ConstantDelaySchedule); ok {
		if skipped := now.Sub(s.Next)/every.Delay - maxMissed; skipped > 0 {
			next = next.Add(skipped * every.Delay)
		}
		return next, nil
	}
	for back := time.Minute; ; back *= 2 {
		from := s.Next
		if earlier := now.Add(-back); earlier.After(from) {
			from = earlier
		}
		var missed []time.Time
		for t := times.Next(from.In(zone)); !t.IsZero() && !t.After(now); t = times.Next(t) {
			missed = append(missed, t.UTC())
		}
		if n := len(missed); n >= maxMissed || from.Equal(s.Next) {
			return missed[max(0, n-maxMissed)], nil
		}
	}
}

// fire executes a fireCommand. Existed is true if another manager was first, or if
// nothing was submitted.
func (c *core) fire(account string, f *fireCommand) (existed bool) {
	s := c.schedules[key{account, f.ID}]
	if s == nil || !s.Next.Equal(f.Due) {
		return true
	}
	s.Next, s.Last, s.LastError = f.Next, f.Due, f.Error
	if s.Overlap == overlapSkip && s.LastID != "" && c.isRunning(account, s.LastID) {
		s.LastError = "the previous run has not ended"
	}
	if s.LastError != "" {
		c.log(zerolog.WarnLevel, "a schedule has submitted nothing: "+s.LastError, logEntry{account: account})
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

// noteTrigger records the stage or task that a caller has made a schedule submit.
func (c *core) noteTrigger(account, id, made string, err error) {
	s := c.schedules[key{account, id}]
	if s == nil || err != nil && !errors.Is(err, ErrConflict) { // a conflict: it was triggered in the same second before
		return
	}
	s.Last, s.LastID, s.LastError = c.at.UTC(), made, ""
}

// isRunning reports whether a stage or single task has not ended.
func (c *core) isRunning(account, id string) bool {
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

// dueSchedules returns the schedules that are due.
func (c *core) dueSchedules(now time.Time) []key {
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

// nextSchedule returns when the next schedule is due. It reports false if there is
// none.
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
