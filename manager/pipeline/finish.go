package pipeline

import (
	"context"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// finish removes a command that was carried out and has no answer. The removal happens later, together with the removal of other
// messages: a process that dies in between lets another one repeat the command, which has no further effect.
func (s *Service) finish(ctx context.Context, m store.Message) error {
	select {
	case s.finished <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finishAll removes finished messages until ctx ends.
func (s *Service) finishAll(ctx context.Context) {
	var messages []store.Message // that are not removed yet
	for ctx.Err() == nil {
		select {
		case m := <-s.finished:
			messages = s.withFinished([]store.Message{m})
		case <-ctx.Done():
		}
		repeat(ctx, &s.cfg.Logger, "pipelines: messages that were handled could not be removed, and will be again", func(ctx context.Context) error {
			err := s.store.Finish(ctx, messages)
			if err == nil {
				messages = nil
			}
			return err
		})
	}
	s.finishLast(ctx, messages)
}

// withFinished adds the messages that were finished meanwhile.
func (s *Service) withFinished(messages []store.Message) []store.Message {
	for len(messages) < queued {
		select {
		case m := <-s.finished:
			messages = append(messages, m)
		default:
			return messages
		}
	}
	return messages
}

// finishLast removes the last finished messages when the service closes. What remains is repeated when its claim ends.
func (s *Service) finishLast(ctx context.Context, messages []store.Message) {
	if s.cfg.tuning.abrupt {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
	defer cancel()
	for messages = s.withFinished(messages); len(messages) > 0; messages = s.withFinished(nil) {
		if err := s.store.Finish(ctx, messages); err != nil {
			s.cfg.Logger.Warn().Err(err).Msg("pipelines: messages that were handled are repeated when their claim ends")
			return
		}
	}
}
