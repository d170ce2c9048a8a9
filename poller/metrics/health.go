package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/poller"
)

const (
	// stalled is how many intervals one turn of the heartbeat loop may take; at most
	// two are normal. A manager gives a delegate up after as many.
	stalled = 6
	// longestPoll is how long one turn of the poll loop may take. A client tries a
	// call several times, with pauses that the manager may prolong: with the default
	// settings less than eight minutes in total.
	longestPoll = 10 * time.Minute
)

// Live checks whether the loops of the poller turn: if not, the process must be
// restarted. A manager that is away or refuses the delegate does not count, nor
// does a drain, nor the time before and after Poll.
func Live(p *poller.Poller) telemetry.Checks {
	return telemetry.Checks{
		{Name: "heartbeats", Run: func(context.Context) error {
			h := p.Health()
			return turns(h.Polling, h.HeartbeatTurn, stalled*h.HeartbeatEvery)
		}},
		{Name: "polls", Run: func(context.Context) error {
			h := p.Health()
			if h.Draining {
				return nil // it ends before the drain does
			}
			return turns(h.Polling, h.PollTurn, longestPoll)
		}},
	}
}

func turns(polling bool, last time.Time, most time.Duration) error {
	if !polling || last.IsZero() {
		return nil
	}
	if d := time.Since(last); d > most {
		return fmt.Errorf("the loop has not turned for %s; the limit is %s", d.Round(time.Second), most)
	}
	return nil
}

// Ready checks whether the delegate takes stages: the manager knows it and no
// drain has begun.
func Ready(p *poller.Poller) telemetry.Checks {
	return telemetry.Checks{
		{Name: "manager", Run: func(context.Context) error {
			switch h := p.Health(); {
			case h.Contact.IsZero():
				return errors.New("not registered with the manager yet")
			case !h.Polling:
				return errors.New("not polling")
			case h.Lost:
				return errors.New("the manager does not know this delegate: registering again")
			case time.Since(h.Contact) > stalled*h.HeartbeatEvery:
				return fmt.Errorf("the manager has accepted no heartbeat for %s", time.Since(h.Contact).Round(time.Second))
			}
			return nil
		}},
		{Name: "draining", Run: func(context.Context) error {
			if p.Health().Draining {
				return errors.New("draining: no new stages are taken")
			}
			return nil
		}},
	}
}
