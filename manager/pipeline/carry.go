package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// carrier carries the messages of a topic over Redis: from the transactions of any process to the workers of any process.
// The database keeps each message until it is handled. A message that is in Redis is claimed in the database meanwhile; if
// Redis loses it, the claim ends and it is sent again.
type carrier struct {
	service *Service
	topic   string
	log     zerolog.Logger
	out     *queue // to Redis
	in      *queue // to the workers of this process
}

// carry starts the loops of a topic.
func (s *Service) carry(ctx context.Context, topic string, out, in *queue, loops *sync.WaitGroup) {
	c := &carrier{service: s, topic: topic, out: out, in: in, log: s.cfg.Logger.With().Str("topic", topic).Logger()}
	loops.Go(func() { c.send(ctx) })
	loops.Go(func() { c.receive(ctx) })
	loops.Go(func() { s.every(ctx, s.cfg.tuning.claim/3, c.claim) })
	loops.Go(func() {
		s.every(ctx, time.Minute, func(ctx context.Context) error { return s.streams.Clean(ctx, topic) })
	})
}

// send sends the messages that this process has claimed in the database.
func (c *carrier) send(ctx context.Context) {
	for messages := c.out.all(ctx, batch); messages != nil; messages = c.out.all(ctx, batch) {
		c.repeat(ctx, func(ctx context.Context) error { return c.service.streams.Send(ctx, c.topic, messages) })
		c.out.release(messages)
	}
}

// receive gets messages for the workers.
func (c *carrier) receive(ctx context.Context) {
	for ctx.Err() == nil {
		room := min(batch, c.in.room())
		if room <= 0 {
			select {
			case <-ctx.Done():
			case <-c.in.space:
			}
			continue
		}
		c.repeat(ctx, func(ctx context.Context) error {
			messages, lost, err := c.service.streams.Receive(ctx, c.topic, room)
			if err == nil && lost {
				err = c.service.store.Unclaim(ctx, c.topic, store.InStreams)
			}
			c.in.add(messages)
			return err
		})
	}
}

// claim keeps the messages of this process, and gets the messages of processes that have died.
func (c *carrier) claim(ctx context.Context) error {
	if old := c.in.claimedBefore(time.Now().Add(-c.service.cfg.tuning.claim / 4)); len(old) > 0 {
		if err := c.service.streams.Keep(ctx, c.topic, old); err != nil {
			return err
		}
	}
	room := min(batch, c.in.room())
	if room <= 0 {
		return nil
	}
	messages, err := c.service.streams.Claim(ctx, c.topic, c.service.cfg.tuning.claim, room)
	c.in.add(messages)
	return err
}

// repeat calls do until it succeeds or ctx ends.
func (c *carrier) repeat(ctx context.Context, do func(context.Context) error) {
	repeat(ctx, &c.log, "pipelines: Redis does not answer; messages wait in the database", do)
}

// settle removes messages of one topic from Redis after they were handled, or before the database gets them back. A
// failure is only logged: what stays in Redis is handled again, and has no further effect.
func (s *Service) settle(ctx context.Context, messages []store.Message) {
	if s.streams == nil || len(messages) == 0 {
		return
	}
	if err := s.streams.Done(ctx, messages[0].Topic, messages); err != nil && ctx.Err() == nil {
		s.cfg.Logger.Warn().Err(err).Msg("pipelines: messages that were handled stay in Redis for a time")
	}
}
