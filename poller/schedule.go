package poller

import (
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// scheduleLoop starts what may start whenever the list, the lanes or the slots
// have changed. It ends with polling.
func (s *session) scheduleLoop() {
	again := time.NewTicker(s.interval) // for events that were refused for a while
	defer again.Stop()
	for {
		slots := s.slots.Changed()
		for _, kind := range kinds {
			s.schedule(kind)
		}
		var tick <-chan time.Time
		if s.board.waiting() > 0 {
			tick = again.C
		}
		select {
		case <-s.board.wake:
		case <-slots:
		case <-tick:
		case <-s.polling.Done():
			return
		}
	}
}

// schedule starts the tasks of one kind that may start.
func (s *session) schedule(kind task.Kind) {
	now := time.Now()
	for _, e := range s.board.candidates(kind, now) {
		slot, why, reason := s.admit(e, kind)
		if why != "" {
			until := now.Add(s.interval)
			if why == RefusedCapacity {
				until = now // a slot may become free at any time
			}
			if s.board.refuse(e, why, until) {
				s.counters.refused(why)
				s.log.Info().Str("task_id", e.TaskID).Str("task_type", e.TaskType).
					Str("refused", string(why)).AnErr("reason", reason).Msg("task left with the manager")
			}
			if why == RefusedCapacity {
				return // the others of its kind fare alike
			}
			continue
		}
		j := s.board.claim(e, kind, slot)
		if j == nil {
			if slot != nil {
				slot.Drop()
			}
			continue
		}
		s.start(j)
	}
}

// admit says whether a task may start: why not, with a reason for the log, or
// with the slot that an init needs.
func (s *session) admit(e task.Event, kind task.Kind) (*capacity.Slot, Reason, error) {
	if s.board.closed(kind) {
		return nil, RefusedDraining, nil
	}
	if s.filter != nil {
		if err := s.filter(e); err != nil {
			return nil, RefusedFilter, err
		}
	}
	if kind != task.Init {
		return nil, "", nil
	}
	reason, problem := s.thresholds.Exceeded(s.polling)
	if problem != nil {
		s.log.Warn().Err(problem).Msg("thresholds are not enforced")
	}
	if reason != nil {
		return nil, RefusedThresholds, reason
	}
	slot, ok := s.slots.Take()
	if !ok {
		return nil, RefusedCapacity, nil
	}
	return slot, "", nil
}
