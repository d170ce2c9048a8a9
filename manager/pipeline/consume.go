package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

const (
	eventWorkers   = 2
	commandWorkers = 4
	// batch is how many messages a worker claims at a time.
	batch = 64
	// defaultClaim is how long a worker has for them without a sign of life. If its process dies,
	// another one gets them after that.
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
	// maxPause bounds the time between tries.
	maxPause = 10 * time.Second
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

// consume handles the messages of a topic until ctx ends.
func (s *Service) consume(ctx context.Context, topic string, handle handler) {
	for ctx.Err() == nil {
		woken := s.store.Wake(topic)
		// An owner must be unique among all claims of all processes.
		owner := strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // it is no secret
		claimed, err := s.store.Claim(ctx, topic, owner, time.Now(), s.cfg.tuning.claim, batch)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn().Err(err).Str("topic", topic).Msg("pipelines: the database does not answer")
		}
		if len(claimed) == batch { // there may be more for another worker
			s.store.Notify(topic)
		}
		if len(claimed) > 0 {
			s.handleAll(ctx, claimed, handle)
			continue
		}
		s.wait(ctx, topic, woken)
	}
}

// handleAll handles claimed messages, and keeps their claim meanwhile.
func (s *Service) handleAll(ctx context.Context, claimed []store.Message, handle handler) {
	kept, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keepClaim(kept, claimed)
	}()
	for _, group := range byRun(claimed) {
		if ctx.Err() != nil {
			break
		}
		s.handleGroup(ctx, group, handle)
	}
	stop()
	<-done
	if ctx.Err() != nil && !s.cfg.tuning.abrupt {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
		defer cancel()
		if err := s.store.Release(release, claimed); err != nil {
			s.cfg.Logger.Warn().Err(err).Msg("pipelines: messages that were not handled return when their claim ends")
		}
	}
}

// keepClaim extends the claim of messages until ctx ends.
func (s *Service) keepClaim(ctx context.Context, claimed []store.Message) {
	tick := time.NewTicker(s.cfg.tuning.claim / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.store.Keep(ctx, claimed, time.Now().Add(s.cfg.tuning.claim)); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn().Err(err).Msg("pipelines: another process may get the messages that this one handles")
		}
	}
}

// wait waits for a message of a topic.
func (s *Service) wait(ctx context.Context, topic string, woken <-chan struct{}) {
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

// byRun groups messages by their run and lane, in their order.
func byRun(messages []store.Message) [][]store.Message {
	index := map[[3]string]int{}
	var groups [][]store.Message
	for _, m := range messages {
		key := [3]string{m.Account, m.Run, m.Lane}
		i, ok := index[key]
		if !ok {
			i = len(groups)
			index[key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}

func (s *Service) handleGroup(ctx context.Context, group []store.Message, handle handler) {
	err := s.try(ctx, group, handle)
	if err == nil || ctx.Err() != nil {
		return
	}
	if len(group) > 1 { // one message must not keep the others
		for _, m := range group {
			s.handleGroup(ctx, []store.Message{m}, handle)
		}
		return
	}
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

// pauseAfter returns the pause after a number of tries: 50 ms, doubled each time.
func pauseAfter(tries int) time.Duration {
	return min(maxPause, 50*time.Millisecond<<min(max(tries-1, 0), 12))
}
