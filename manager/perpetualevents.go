package manager

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/delegate-io/dlite/manager/internal/perpetual"
)

// PerpetualEvent is an event that a run of a perpetual task has returned (task.PerpetualResult).
type PerpetualEvent struct {
	// ID is larger than the ids of all earlier events. A repeated event has the same one.
	ID uint64
	// Account and Task name the perpetual task.
	Account, Task string
	// At is when the manager took the result of the run.
	At time.Time
	// Data is the JSON value of the handler.
	Data json.RawMessage
}

// ConsumePerpetual calls f with the events of the perpetual tasks of a type, in their
// order, up to 100 at a time, until ctx ends or the manager closes. The manager keeps an
// event, in its store, until a call with it has returned nil. After an error the same
// events come again, after a pause of 1 s to 1 min. An event may come again after a
// success too, if this process or the store failed at that moment: f recognises it by its
// ID. The context of f ends with ctx, and when another process may get the events.
//
// Any number of managers of a store may call ConsumePerpetual for a type: one of them at a
// time gets events. Events of a type without a consumer wait; if too many do, the manager
// does not take further results of the account's tasks with events. ConsumePerpetual
// returns the error of ctx, or [ErrClosed].
func (m *Manager) ConsumePerpetual(ctx context.Context, taskType string, f func(context.Context, []PerpetualEvent) error) error {
	c := &perpetualConsumer{m: m, taskType: taskType, id: rand.Text(), f: f}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = time.Second, time.Minute
	for {
		taken, err := c.consume(ctx)
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			m.cfg.Logger.Warn().Err(err).Str("perpetual_type", taskType).Msg("the events of perpetual tasks were not taken: they come again")
			pause = pauses.NextBackOff()
		case taken:
			pauses.Reset()
			continue
		}
		if err := c.await(ctx, pause); err != nil {
			return err
		}
	}
}

type perpetualConsumer struct {
	m            *Manager
	taskType, id string
	f            func(context.Context, []PerpetualEvent) error
}

// first returns the first events, and the end of the claim of another consumer.
func (c *perpetualConsumer) first() ([]perpetual.Event, time.Time, <-chan struct{}) {
	c.m.core.mu.Lock()
	defer c.m.core.mu.Unlock()
	return c.m.core.perpetual.Events(c.taskType, c.id)
}

// claim gets or renews the claim to the events. It reports false if another consumer has it.
func (c *perpetualConsumer) claim(ctx context.Context, done uint64) (bool, error) {
	r, err := c.m.applyCommand(ctx, &command{Perpetual: &perpetualCommand{Take: &perpetualTakeCommand{Type: c.taskType, Consumer: c.id, Done: done}}})
	return r.existed, err
}

// consume calls f once. It reports false if there was nothing, or another consumer has it.
func (c *perpetualConsumer) consume(ctx context.Context) (bool, error) {
	events, free, _ := c.first()
	if len(events) == 0 || free.After(c.m.journal.Now()) {
		return false, nil
	}
	if ok, err := c.claim(ctx, 0); err != nil || !ok {
		return false, err
	}
	events, _, _ = c.first()
	if len(events) == 0 {
		return false, nil
	}
	list := make([]PerpetualEvent, len(events))
	for i, e := range events {
		list[i] = PerpetualEvent{ID: e.ID, Account: e.Account, Task: e.Task, At: e.Time(), Data: e.Data}
	}
	if err := c.call(ctx, list); err != nil {
		return false, err
	}
	_, err := c.claim(ctx, list[len(list)-1].ID)
	return true, err
}

// renewClaim is the time after which a claim is renewed, a third of its length.
const renewClaim = 10 * time.Second

// call calls f, and keeps the claim until f returns. A panic is an error.
func (c *perpetualConsumer) call(ctx context.Context, list []PerpetualEvent) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			due, stop := c.m.after(renewClaim)
			select {
			case <-due:
			case <-ctx.Done():
				stop()
				return
			}
			stop()
			trying, end := context.WithTimeout(ctx, renewClaim)
			ok, err := c.claim(trying, 0)
			end()
			if err != nil || !ok {
				cancel()
				return
			}
		}
	})
	defer renewing.Wait()
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the consumer panicked: %v", p)
		}
	}()
	return c.f(ctx, list)
}

// await waits for events that may be claimed, at least for a pause.
func (c *perpetualConsumer) await(ctx context.Context, pause time.Duration) error {
	events, free, changed := c.first()
	var due <-chan time.Time
	stop := func() {}
	switch {
	case pause > 0:
		changed = nil
		due, stop = c.m.after(pause)
	case len(events) > 0:
		due, stop = c.m.after(max(free.Sub(c.m.journal.Now()), time.Second/10))
	}
	defer stop()
	select {
	case <-changed:
		return nil
	case <-due:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.m.closing:
		return ErrClosed
	}
}
