package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

const (
	eventWorkers   = 2
	commandWorkers = 4
	// batch is how many messages a worker claims at a time.
	batch = 64
	// claim is how long a worker has for them. If it dies, another one gets them after that.
	claim = 30 * time.Second
	// poll bounds the wait for messages of which no notification came.
	poll = 2 * time.Second
	// maxTries is how often a message is delivered before it becomes a dead letter. A message
	// whose manager is away is not counted out: see later.
	maxTries = 20
	// maxPause bounds the time between tries.
	maxPause = 30 * time.Second
)

// laterError reports that a message cannot be handled now, for a reason that will pass: the
// manager is away or its budget is used up. It is tried for ever.
type laterError struct{ error }

func (e laterError) Unwrap() error { return e.error }

// consume handles the messages of a topic until ctx ends. It gives handle all messages of one
// run at once, in their order. handle removes those that it has handled, and returns the error of
// the first that it has not.
func (s *Service) consume(ctx context.Context, topic string, handle func(context.Context, []store.Message) error) {
	for ctx.Err() == nil {
		woken := s.store.Wake(topic)
		// An owner must be unique among all claims of all processes.
		owner := strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36) //nolint:gosec // it is no secret
		claimed, err := s.store.Claim(ctx, topic, owner, time.Now(), claim, batch)
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn().Err(err).Str("topic", topic).Msg("pipelines: the database does not answer")
		}
		for _, group := range byRun(claimed) {
			s.handleGroup(ctx, group, handle)
		}
		if len(claimed) > 0 {
			continue
		}
		s.wait(ctx, topic, woken)
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

func (s *Service) handleGroup(ctx context.Context, group []store.Message, handle func(context.Context, []store.Message) error) {
	err := handle(ctx, group)
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrStale) {
		return
	}
	if len(group) > 1 { // one message must not keep the others
		for _, m := range group {
			s.handleGroup(ctx, []store.Message{m}, handle)
		}
		return
	}
	m := group[0]
	retry := time.Now().Add(pauseAfter(m.Tries))
	var later laterError
	if m.Tries >= maxTries && !errors.As(err, &later) {
		retry = time.Time{}
	}
	s.cfg.Logger.Warn().Err(err).Str("run", m.Run).Str("message", m.Name).Int("tries", m.Tries).Bool("given_up", retry.IsZero()).
		Msg("pipelines: a message was not handled")
	if err := s.store.Fail(ctx, m, retry, err); err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn().Err(err).Str("message", m.Name).Msg("pipelines: the message returns when its claim ends")
	}
}

// pauseAfter returns the pause after a number of tries: 50 ms, doubled each time.
func pauseAfter(tries int) time.Duration {
	return min(maxPause, 50*time.Millisecond<<min(max(tries-1, 0), 12))
}
