package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
	"github.com/delegate-io/dlite/task"
)

// A status is sent by a delegate, as a single task. The row has the task before the manager does, so that a service
// that dies leaves nothing unknown: the next one submits the same task again, and gets its result. While a task may still
// reach the provider, no other one is sent for the row: a late "running" must not overwrite "success". A task whose end is
// not known is over some time after it expires.

const (
	// statusExpires is how long a delegate may begin to send a status, and statusSlack how much later it is certain that it
	// does not: the request of the delegate takes at most 15 seconds, and clocks differ.
	statusExpires = time.Minute
	statusSlack   = 30 * time.Second
	// statusLook is the time between two looks at a task.
	statusLook = time.Second
	// statusAge is how long a status is sent again.
	statusAge = 24 * time.Hour
	// statusTimeout bounds the task at the delegate.
	statusTimeout = 20 * time.Second

	leastStatusPause, mostStatusPause = 5 * time.Second, 15 * time.Minute
)

// deliverStatuses looks at the statuses that are due.
func (s *Service) deliverStatuses(ctx context.Context, at time.Time) error {
	const batch = 100
	m, ok := s.cfg.Manager.(statusTasks)
	if !ok {
		return nil
	}
	due, err := s.store.DueStatuses(ctx, at, batch)
	for i := range due {
		if ctx.Err() != nil {
			break
		}
		if one := s.deliverStatus(ctx, m, &due[i], at); one != nil {
			err = errors.Join(err, fmt.Errorf("a status of the run %s of account %s: %w", due[i].Run, due[i].Account, one))
		}
	}
	return err
}

// deliverStatus begins an attempt for a status, or looks at the present one.
func (s *Service) deliverStatus(ctx context.Context, m statusTasks, seen *store.Status, at time.Time) error {
	var was savedStatus
	if err := json.Unmarshal(seen.Data, &was); err != nil {
		return fmt.Errorf("decoding the status of a commit: %w", err)
	}
	var with *api.Connector
	if was.Attempt == nil {
		c, ok, err := s.managed(ctx, seen.Account, was.Target.Connector)
		if err != nil {
			return err
		}
		if ok {
			with = &c
		}
	}
	var attempt *statusAttempt
	err := s.changeStatus(ctx, seen, func(st *store.Status, saved *savedStatus) error {
		if st.Due.IsZero() || st.Due.After(at) {
			return errNotDue // another service was first
		}
		if saved.Attempt == nil {
			if was.Attempt != nil || saved.Target.Connector != was.Target.Connector {
				return errNotDue // it needs another connector now, and is due again
			}
			s.beginAttempt(st, saved, with, at)
		}
		if attempt = saved.Attempt; attempt != nil {
			st.Due = at.Add(statusLook)
		}
		return nil
	})
	if err != nil || attempt == nil {
		return ignoreNotDue(err)
	}
	ended, err := submitStatus(ctx, m, seen.Account, attempt)
	var answer source.StatusAnswer
	switch {
	case err != nil && at.Before(attempt.Expires.Add(statusSlack)):
		return err // it is submitted again
	case err != nil:
		answer.Message = err.Error()
	case !ended.Ended() && at.Before(attempt.Expires.Add(statusSlack)):
		return nil
	case ended.Status == api.Success && json.Unmarshal(ended.Data, &answer) == nil:
	case at.Before(attempt.Expires.Add(statusSlack)): // it may still reach the provider
		return s.endLater(ctx, seen, attempt)
	default:
		answer = source.StatusAnswer{Message: "no delegate has sent the status: " + ended.Error}
	}
	return ignoreNotDue(s.changeStatus(ctx, seen, func(st *store.Status, saved *savedStatus) error {
		if saved.Attempt == nil || saved.Attempt.Task != attempt.Task {
			return errNotDue
		}
		s.endAttempt(st, saved, &answer, at)
		return nil
	}))
}

// endLater looks at an attempt again when it is certainly over.
func (s *Service) endLater(ctx context.Context, seen *store.Status, attempt *statusAttempt) error {
	return ignoreNotDue(s.changeStatus(ctx, seen, func(st *store.Status, _ *savedStatus) error {
		st.Due = attempt.Expires.Add(statusSlack)
		return nil
	}))
}

// changeStatus changes a status that is as it was seen. It fails with errNotDue otherwise.
func (s *Service) changeStatus(ctx context.Context, seen *store.Status, change func(*store.Status, *savedStatus) error) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		st, err := tx.Status(seen.Account, seen.Slot)
		if errors.Is(err, store.ErrNotFound) {
			return errNotDue
		}
		if err != nil {
			return err
		}
		var saved savedStatus
		if err := json.Unmarshal(st.Data, &saved); err != nil {
			return fmt.Errorf("decoding the status of a commit: %w", err)
		}
		if err := change(st, &saved); err != nil {
			return err
		}
		return saved.put(tx, st)
	})
}

// beginAttempt chooses what to send next for a status, if anything. C is its connector, or nil if the manager has none.
func (s *Service) beginAttempt(st *store.Status, saved *savedStatus, c *api.Connector, at time.Time) {
	if saved.Done >= saved.Seq {
		st.Due = time.Time{}
		return
	}
	giveUp := func(problem string) {
		saved.Done, saved.GivenUp, saved.Problem, st.Due = saved.Seq, true, problem, time.Time{}
		s.cfg.Logger.Error().Str("account", st.Account).Str("run", st.Run).Str("provider", saved.Target.Provider).Str("state", saved.State).Str("problem", problem).
			Msg("pipelines: the status of a commit was given up")
	}
	if at.Sub(saved.Since) > statusAge {
		giveUp("given up after " + statusAge.String() + ": " + saved.Problem)
		return
	}
	if c == nil {
		saved.Problem, st.Due = fmt.Sprintf("the manager has no connector %q any more", saved.Target.Connector), at.Add(mostStatusPause)
		return
	}
	if until := s.heldUntil(st.Account, saved.Target.Connector, at); !until.IsZero() {
		st.Due = until
		return
	}
	saved.Tries++
	t, expires := &saved.Target, at.Add(statusExpires).UTC()
	data, err := json.Marshal(source.StatusRequest{
		Provider: t.Provider, Server: expression.Escape(t.Server), Repository: expression.Escape(t.Repository), Commit: t.Commit, Context: expression.Escape(t.Context),
		State: saved.State, Description: saved.Description, Link: s.runLink(st.Run), Auth: managedAuth(c), Expires: expires,
	})
	if err != nil {
		giveUp(err.Error())
		return
	}
	name := "status-" + st.Slot[:min(len(st.Slot), 24)] + "-" + strconv.FormatInt(saved.Seq, 10) + "-" + strconv.Itoa(saved.Tries) + "-" + strconv.FormatInt(expires.UnixMilli(), 36)
	saved.Attempt = &statusAttempt{Task: name, Seq: saved.Seq, State: saved.State, Data: data, Selectors: c.Selectors, Expires: expires}
}

// runLink returns the address of the page of a run, or nothing.
func (s *Service) runLink(run string) string {
	if s.cfg.PageURL == "" {
		return ""
	}
	return s.cfg.PageURL + "/#/runs/" + run
}

// submitStatus submits the task of an attempt, or returns its state if it was submitted before.
func submitStatus(ctx context.Context, m statusTasks, account string, a *statusAttempt) (api.Task, error) {
	const callTime = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return m.SubmitTask(ctx, account, manager.TaskRequest{
		Task:         task.Task{ID: a.Task, Type: source.TypeStatus, Data: a.Data, Timeout: task.Millis(statusTimeout.Milliseconds())},
		Selectors:    a.Selectors,
		QueueTimeout: task.Millis(statusExpires.Milliseconds()),
	})
}

// endAttempt applies the result of an attempt.
func (s *Service) endAttempt(st *store.Status, saved *savedStatus, answer *source.StatusAnswer, at time.Time) {
	a := saved.Attempt
	saved.Attempt, saved.Problem = nil, clip(answer.Message, mostReason)
	switch {
	case answer.Sent:
		saved.Done, saved.Sent, saved.Tries, saved.Problem = a.Seq, a.State, 0, ""
		saved.Since, st.Due = at, at
	case answer.Refused:
		saved.Done, saved.Tries, st.Due = a.Seq, 0, at
		saved.GivenUp = saved.Seq == a.Seq
		s.cfg.Logger.Error().Str("account", st.Account).Str("run", st.Run).Str("provider", saved.Target.Provider).Str("state", a.State).Str("problem", saved.Problem).
			Msg("pipelines: the provider refuses the status of a commit")
	default:
		pause := min(leastStatusPause<<min(saved.Tries-1, 10), mostStatusPause)
		asked := time.Duration(answer.RetryAfterMS) * time.Millisecond
		st.Due = at.Add(max(pause, asked))
		if asked > 0 {
			s.holdStatuses(st.Account, saved.Target.Connector, at.Add(asked))
		}
	}
	if saved.Done >= saved.Seq {
		st.Due = time.Time{}
	}
}

// holdStatuses keeps the statuses of a connector back for the pause that its provider asks for.
func (s *Service) holdStatuses(account, connector string, until time.Time) {
	const most = 1000
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holds) >= most { // they only save requests
		clear(s.holds)
	}
	s.holds[runKey{account, connector}] = until
}

// heldUntil returns until when the statuses of a connector are kept back, or zero.
func (s *Service) heldUntil(account, connector string, at time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := s.holds[runKey{account, connector}]; until.After(at) {
		return until
	}
	return time.Time{}
}
