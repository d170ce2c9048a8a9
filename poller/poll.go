package poller

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/client"
)

// mostFruitless is how many polls in a row may return at once without news before
// the poller pauses between polls. A few are usual: the list also changes when it
// gets shorter.
const mostFruitless = 20

// pollLoop keeps the task table up to date until polling ends. It continues during
// a drain, because open transactions have tasks to come.
func (s *session) pollLoop() {
	var cursor string
	fruitless := 0 // polls in a row that ended at once without news
	wait := newBackOff(shortestPause, longestPause)
	for s.polling.Err() == nil {
		s.turns.poll.now()
		if why := s.lost.reason(); why != nil {
			s.registerAgain(why)
			cursor = ""
			continue
		}
		begun := time.Now()
		p, err := s.poll(cursor)
		switch {
		case err == nil:
			now := time.Now()
			if fruitless++; s.table.update(p, now) || now.Sub(begun) > time.Second {
				fruitless = 0
			}
			wait.Reset()
			cursor = p.Cursor
			if p.Held && fruitless <= mostFruitless {
				s.pauseWhileCrowded()
			} else {
				s.pauseBetweenPolls()
			}
		case s.polling.Err() != nil || s.lost.reason() != nil:
		case isLost(err):
			s.lost.report(err)
		default:
			s.counters.pollErrors.Add(1)
			s.log.Warn().Err(err).Msg("cannot poll the manager")
			wait.pause(s.polling)
		}
	}
}

// poll asks the manager once. It ends early when a heartbeat finds that the
// manager does not know the delegate: a held poll would delay the registration.
func (s *session) poll(cursor string) (*client.Pending, error) {
	ctx, cancel := context.WithCancel(s.polling)
	defer cancel()
	s.lost.interrupt(cancel)
	s.counters.polls.Add(1)
	return s.client.Poll(ctx, s.delegateID(), client.PollQuery{Wait: s.wait, Since: cursor})
}

// crowdedPause is the pause between held polls while more tasks are pending than
// the delegate can start: the manager would answer each poll at once.
const crowdedPause = 10 * time.Millisecond

// pauseWhileCrowded prevents that a long list is fetched again for every task that
// is added to it.
func (s *session) pauseWhileCrowded() {
	select {
	case <-s.table.runningLow: // from the previous list
	default:
	}
	if s.table.pendingCount() > s.table.executors {
		pause(s.polling, crowdedPause, s.table.runningLow)
	}
}

// pauseBetweenPolls waits for the interval. It ends early when a task was answered
// and no other task is pending: the next task of the stage may be there.
func (s *session) pauseBetweenPolls() {
	t := time.NewTimer(jitter(s.interval))
	defer t.Stop()
	for {
		select {
		case <-s.pollNow:
			if s.table.pendingCount() == 0 { // else the tasks of the last list still wait
				return
			}
		case <-t.C:
			return
		case <-s.polling.Done():
			return
		}
	}
}
