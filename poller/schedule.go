package poller

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// scheduleLoop starts tasks whenever the list, the executors or the slots have
// changed. It ends with polling.
func (s *session) scheduleLoop() {
	again := time.NewTicker(s.interval) // for events that were refused for a while
	defer again.Stop()
	for {
		slots := s.slots.Changed()
		for _, kind := range kinds {
			s.schedule(kind)
		}
		var tick <-chan time.Time
		if s.table.pendingCount() > 0 {
			tick = again.C
		}
		select {
		case <-s.table.wake:
		case <-slots:
		case <-tick:
		case <-s.polling.Done():
			return
		}
	}
}

// schedule starts the tasks of one kind that may start. It looks on behind those
// that are refused, at ever more at a time: nearly all of a long list may be.
func (s *session) schedule(kind taskkind.Kind) {
	now := time.Now()
	for least := 0; ; least = max(16, 2*least) {
		refused := false
		for _, e := range s.table.candidates(kind, now, least) {
			if least > 0 && s.table.runningOf(kind) >= s.table.executors {
				return
			}
			switch s.tryStart(e, kind, now) {
			case "":
			case refusedCapacity, refusedMaintenance:
				return // the others of its kind fare alike
			default:
				refused = true
			}
		}
		if !refused {
			return
		}
	}
}

// tryStart starts a task, or returns the reason why the task stays with the
// manager.
func (s *session) tryStart(e task.Event, kind taskkind.Kind, now time.Time) string {
	slot, why, reason := s.admit(e, kind)
	if why != "" {
		until := now.Add(s.interval)
		if why == refusedCapacity || why == refusedMaintenance {
			until = now // that may change at any time
		}
		if s.table.postpone(e, why, until) {
			s.counters.refused(why)
			s.taskLog(e.TaskID, e.TaskType).Info().
				Str("refused", why).AnErr("reason", reason).Msg("a task was left with the manager")
		}
		return why
	}
	if j := s.table.claim(e, kind, slot); j != nil {
		s.dispatch(j)
	} else if slot != nil {
		slot.Drop()
	}
	return ""
}

// admit decides whether a task may start. It returns the reason of a refusal with
// an error for the log, or the slot of an init.
func (s *session) admit(e task.Event, kind taskkind.Kind) (*capacity.Slot, string, error) {
	if s.table.refusesKind(kind) {
		return nil, refusedDraining, nil
	}
	if err := s.applyFilter(e); err != nil {
		return nil, refusedFilter, err
	}
	if kind != taskkind.Init {
		return nil, "", nil
	}
	if err := s.maintained(); err != nil {
		return nil, refusedMaintenance, err
	}
	reason, problem := s.thresholds.Exceeded(s.polling)
	if problem != nil {
		s.log.Warn().Err(problem).Msg("cannot measure the load: thresholds are not enforced")
	}
	if reason != nil {
		var excess *capacity.Excess
		if errors.As(reason, &excess) {
			s.refused.Store(&client.Refusal{Resource: excess.Resource, Load: int(math.Round(excess.Load)), Limit: int(math.Round(excess.Limit))})
		}
		return nil, refusedThresholds, reason
	}
	slot, ok := s.slots.Take()
	if !ok {
		return nil, refusedCapacity, nil
	}
	return slot, "", nil
}

// applyFilter returns the filter's error. A filter that panics must not end the
// process.
func (s *session) applyFilter(e task.Event) (err error) {
	if s.filter == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the filter panicked: %v", p)
		}
	}()
	return s.filter(e)
}
