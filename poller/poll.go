package poller

import (
	"context"
	"time"

	"github.com/delegate-io/dlite/client"
)

// mostFruitless is how many polls in a row may end at once without news before
// the poller stops to believe that the manager holds them. A few are usual: a
// list changes also when it gets shorter.
const mostFruitless = 20

// pollLoop keeps the board's list up to date until polling ends. It goes on
// during a drain: the open transactions have tasks to come.
func (s *session) pollLoop() {
	var cursor string
	fruitless := 0 // polls in a row that ended at once without news
	wait := newBackOff(shortestPause, longestPause)
	for s.polling.Err() == nil {
		s.pulse.poll.now()
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
			if fruitless++; s.board.list(p, now) || now.Sub(begun) > time.Second {
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
			s.log.Warn().Err(err).Msg("could not poll")
			wait.pause(s.polling)
		}
	}
}

// poll asks once. It ends early when a heartbeat hears that the manager does not
// know the delegate: a held poll would keep that from being mended.
func (s *session) poll(cursor string) (*client.Pending, error) {
	ctx, cancel := context.WithCancel(s.polling)
	defer cancel()
	s.lost.interrupt(cancel)
	s.counters.polls.Add(1)
	return s.client.Poll(ctx, s.delegateID(), client.PollQuery{Wait: s.wait, Since: cursor})
}

// crowdedPause is how long a delegate that has more on its list than it can start
// leaves a manager alone that would answer at once.
const crowdedPause = 10 * time.Millisecond

// pauseWhileCrowded keeps a long list from being fetched again for every task
// that is added to it.
func (s *session) pauseWhileCrowded() {
	select {
	case <-s.board.hungry: // of the list before
	default:
	}
	if s.board.waiting() > s.board.lanes {
		pause(s.polling, crowdedPause, s.board.hungry)
	}
}

// pauseBetweenPolls waits for the interval, less when a task has been answered
// and nothing is left on the list: what follows it may be there.
func (s *session) pauseBetweenPolls() {
	t := time.NewTimer(jitter(s.interval))
	defer t.Stop()
	for {
		select {
		case <-s.nudge:
			if s.board.waiting() == 0 { // not before: what was just listed still waits then
				return
			}
		case <-t.C:
			return
		case <-s.polling.Done():
			return
		}
	}
}
