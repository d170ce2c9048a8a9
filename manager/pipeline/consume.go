package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

const (
	eventWorkers   = 6
	commandWorkers = 6
	// batch is how many messages a process claims at a time.
	batch = 64
	// defaultClaim is how long a process has for them without a sign of life, or a quarter of the lease of stages if that
	// is shorter. If it dies, another one gets them after that.
	defaultClaim = 30 * time.Second
	// handling bounds the time for the messages of one run.
	handling = time.Minute
	// releasing bounds the time to return claimed messages when the service closes.
	releasing = 5 * time.Second
	// poll bounds the wait for messages of which no notification came.
	poll = 2 * time.Second
	// defaultTries is how often a message that cannot be read or applied is delivered before it
	// becomes a dead letter. It leaves minutes, because a newer version of the service may be
	// starting that understands it.
	defaultTries = 20
)

// brokenError reports that a message cannot be handled by this version of the service, however
// often it is tried. After some tries it becomes a dead letter, and its run ends. All other
// errors pass: a message is tried until the manager and the database answer.
type brokenError struct{ error }

func (e brokenError) Unwrap() error { return e.error }

func broken(format string, args ...any) error { return brokenError{fmt.Errorf(format, args...)} }

// handler handles messages of one run in their order. It removes those that it has handled, and
// returns the error of the first that it has not.
type handler func(context.Context, []store.Message) error

// consume handles the messages of a topic until ctx ends. Messages that a transaction of this process sends come to its
// queue at once; the others, for example those that are due later or that a dead process had, are claimed.
func (s *Service) consume(ctx context.Context, topic string, workers int, handle handler) {
	q := s.queues[topic]
	claimed := q // gets the messages that this process claims in the database
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for group := q.next(ctx); group != nil; group = q.next(ctx) {
				s.handleGroup(ctx, group, handle)
				if ctx.Err() == nil {
					q.release(group)
				}
			}
		})
	}
	if s.streams == nil {
		running.Go(func() {
			s.every(ctx, s.cfg.tuning.claim/3, func(ctx context.Context) error { return s.keepClaims(ctx, q) })
		})
	} else {
		claimed = s.outgoing[topic]
		s.carry(ctx, topic, claimed, q, &running)
	}
	for tries := 1; ctx.Err() == nil; {
		woken := s.store.Wake(topic)
		room := min(batch, claimed.room())
		if room <= 0 {
			select {
			case <-ctx.Done():
			case <-claimed.space:
			}
			continue
		}
		messages, err := s.store.Claim(ctx, topic, s.owner, time.Now(), s.cfg.tuning.claim, room)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Logger.Warn().Err(err).Str("topic", topic).Msg("pipelines: messages cannot be claimed in the database and will be again")
			}
			pause(ctx, pauseAfter(tries)) // messages may be due: a full disk can be read
			tries++
			continue
		}
		tries = 1
		claimed.add(messages)
		if len(messages) < room {
			s.wait(ctx, topic, woken)
		}
	}
	running.Wait()
	if s.cfg.tuning.abrupt {
		return
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
	defer cancel()
	left := q.claimedBefore(time.Now().Add(time.Hour))
	if claimed != q {
		s.settle(release, left)
		left = append(left, claimed.claimedBefore(time.Now().Add(time.Hour))...)
	}
	if len(left) > 0 {
		if err := s.store.Release(release, left); err != nil {
			s.cfg.Logger.Warn().Err(err).Msg("pipelines: messages that were not handled return when their claim ends")
		}
	}
}

// keepClaims extends the claims of messages that wait or are being handled.
func (s *Service) keepClaims(ctx context.Context, q *queue) error {
	old := q.claimedBefore(time.Now().Add(-s.cfg.tuning.claim / 4))
	if len(old) == 0 {
		return nil
	}
	return s.store.Keep(ctx, old, time.Now().Add(s.cfg.tuning.claim))
}

// taker returns how transactions give messages to the queue of a topic.
func (s *Service) taker(topic string) store.Taker {
	q := s.queues[topic]
	if s.streams != nil {
		q = s.outgoing[topic]
	}
	return store.Taker{Owner: s.owner, Claim: s.cfg.tuning.claim, Room: q.room, Take: q.add}
}

// newOwner returns a name for a process, which is unique among all processes.
func newOwner() string {
	return strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // it is no secret
}

// wait waits for a message of a topic.
func (s *Service) wait(ctx context.Context, topic string, woken <-chan struct{}) {
	select {
	case <-woken: // the busy service need not ask when a message is due
		return
	default:
	}
	pause := poll
	if next, err := s.store.Next(ctx, topic); err == nil && !next.IsZero() {
		pause = min(poll, max(0, time.Until(next)))
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
}

func (s *Service) handleGroup(ctx context.Context, group []store.Message, handle handler) {
	err := s.try(ctx, group, handle)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		s.settle(ctx, group)
		return
	}
	if len(group) > 1 { // one message must not keep the others
		for _, m := range group {
			s.handleGroup(ctx, []store.Message{m}, handle)
		}
		return
	}
	s.settle(ctx, group) // before the database sends it again
	if errors.Is(err, store.ErrStale) {
		return
	}
	m := group[0]
	var poison brokenError
	giveUp := errors.As(err, &poison) && m.Tries >= s.cfg.tuning.tries
	s.cfg.Logger.Warn().Err(err).Str("run", m.Run).Str("message", m.Name).Int("tries", m.Tries).Bool("given_up", giveUp).
		Msg("pipelines: a message was not handled")
	if giveUp {
		err = s.giveUp(ctx, m, err)
	} else {
		err = s.store.Fail(ctx, m, time.Now().Add(pauseAfter(m.Tries)), err)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn().Err(err).Str("message", m.Name).Msg("pipelines: the message returns when its claim ends")
	}
}

// try calls a handler within a time. A panic is an error of its messages.
func (s *Service) try(ctx context.Context, group []store.Message, handle handler) (err error) {
	ctx, cancel := context.WithTimeout(ctx, handling)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Logger.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Str("run", group[0].Run).Msg("pipelines: the handler of a message panicked")
			err = broken("the service failed internally: %v", p)
		}
	}()
	return handle(ctx, group)
}
