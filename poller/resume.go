package poller

import (
	"errors"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/taskkind"
)

// errRestarted is the answer to a task that an earlier process had begun and that
// cannot continue.
var errRestarted = errors.New("the delegate was restarted while it had this task, and how far it got is not known")

// resume takes up the tasks that an earlier process of the delegate had taken and
// not answered.
func (s *session) resume() {
	if s.state == nil {
		return
	}
	owed, err := s.state.all()
	if err != nil {
		s.log.Warn().Err(err).Msg("cannot read all tasks of the earlier process")
	}
	for _, t := range owed {
		j := &job{event: t.Event, kind: taskkind.Of(t.Event.TaskType), previous: &t}
		if j.kind == taskkind.Init {
			j.slot = s.slots.Force() // it counts, even above the bound
		}
		s.taskLog(t.Event.TaskID, t.Event.TaskType).Info().Bool("acquired", t.Acquired).
			Msg("resuming a task of the earlier process")
		s.table.addResumed(j)
		s.dispatch(j)
	}
}

// resumeJob continues with a task of an earlier process: the manager gives it
// again, or it is answered FAILED.
func (s *session) resumeJob(j *job, id string) {
	owed := j.previous
	switch {
	case owed.Acquired && (j.kind == taskkind.Standalone || owed.Delegate != id):
		s.answerFailed(j, owed.Delegate, errRestarted)
		return
	case owed.Delegate != id:
		s.acquireFailed(j, nil)
		return
	}
	for wait := newBackOff(shortestPause, longestPause); ; {
		t, err := s.client.Acquire(s.work, id, j.event)
		switch {
		case errors.Is(err, client.ErrMalformed):
			s.answerUnreadable(j, id, err)
		case err == nil && t != nil:
			s.acquired(j, id, t)
		case s.work.Err() == nil && (errors.Is(err, client.ErrRetryable) || errors.Is(err, client.ErrUnauthorized)):
			if errors.Is(err, client.ErrUnauthorized) {
				s.lost.report(err)
			}
			s.taskLog(j.event.TaskID, j.event.TaskType).Warn().Err(err).Msg("cannot acquire a task of the earlier process")
			wait.pause(s.work)
			continue
		case owed.Acquired && s.work.Err() == nil:
			s.answerFailed(j, id, errRestarted)
		default:
			s.acquireFailed(j, err)
		}
		return
	}
}

// recordTaken stores a task for the next process.
func (s *session) recordTaken(t taken) {
	if s.state == nil {
		return
	}
	if err := s.state.put(t); err != nil {
		s.log.Warn().Err(err).Msg("cannot store a task: a restarted delegate will not continue with it")
	}
}

// dropTaken removes a stored task that is answered or was not acquired.
func (s *session) dropTaken(id string) {
	if s.state == nil {
		return
	}
	if err := s.state.drop(id); err != nil {
		s.log.Warn().Err(err).Msg("cannot remove a stored task: a restarted delegate will answer it again")
	}
}
