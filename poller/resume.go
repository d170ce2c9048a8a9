package poller

import (
	"errors"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

// errRestarted is the answer to what an earlier process had begun and nobody can
// go on with.
var errRestarted = errors.New("the delegate was restarted while it had this task, and how far it got is not known")

// resume takes up the tasks that an earlier process of the delegate had taken
// and not answered.
func (s *session) resume() {
	if s.state == nil {
		return
	}
	owed, err := s.state.all()
	if err != nil {
		s.log.Warn().Err(err).Msg("some tasks of before the restart are not known any more")
	}
	for _, t := range owed {
		j := &job{event: t.Event, kind: task.KindOf(t.Event.TaskType), owed: &t}
		if j.kind == task.Init {
			j.slot = s.slots.Force() // it counts, whatever else came back
		}
		s.taskLog(t.Event.TaskID, t.Event.TaskType).Info().Bool("acquired", t.Acquired).
			Msg("taking up a task of before the restart")
		s.board.adopt(j)
		s.start(j)
	}
}

// takeUp goes on with a task of before the restart: the manager gives it again,
// or it is answered for.
func (s *session) takeUp(j *job, id string) {
	owed := j.owed
	switch {
	case owed.Acquired && (j.kind == task.Standalone || owed.Delegate != id):
		s.fail(j, owed.Delegate, errRestarted)
		return
	case owed.Delegate != id:
		s.missed(j, nil)
		return
	}
	for wait := newBackOff(shortestPause, longestPause); ; {
		t, err := s.client.Acquire(s.work, id, j.event)
		switch {
		case errors.Is(err, client.ErrMalformed):
			s.unreadable(j, id, err)
		case err == nil && t != nil:
			s.acquired(j, id, t)
		case s.work.Err() == nil && (errors.Is(err, client.ErrRetryable) || errors.Is(err, client.ErrUnauthorized)):
			if errors.Is(err, client.ErrUnauthorized) {
				s.lost.report(err)
			}
			s.taskLog(j.event.TaskID, j.event.TaskType).Warn().Err(err).Msg("could not acquire a task of before the restart")
			wait.pause(s.work)
			continue
		case owed.Acquired && s.work.Err() == nil:
			s.fail(j, id, errRestarted)
		default:
			s.missed(j, err)
		}
		return
	}
}

// keep remembers a task for the next process.
func (s *session) keep(t taken) {
	if s.state == nil {
		return
	}
	if err := s.state.put(t); err != nil {
		s.log.Warn().Err(err).Msg("a restarted delegate will not go on with a task")
	}
}

// forget drops a task that is answered, or was not to be had.
func (s *session) forget(id string) {
	if s.state == nil {
		return
	}
	if err := s.state.drop(id); err != nil {
		s.log.Warn().Err(err).Msg("a restarted delegate will answer a task again")
	}
}
