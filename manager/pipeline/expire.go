package pipeline

import (
	"context"
	"fmt"
	"time"
)

// expireBatch is the number of runs or stages that one transaction removes. It is small, because
// with SQLite the changes of runs wait for it.
const expireBatch = 50

// expire removes runs and stages that ended too long ago, and those that make the history too
// large.
func (s *Service) expire(ctx context.Context) error {
	before := time.Now().Add(-s.cfg.Retention)
	if err := s.store.ForgetOutcomes(ctx, before); err != nil {
		return err
	}
	if err := s.store.ForgetDeliveries(ctx, before); err != nil {
		return err
	}
	if err := s.store.ForgetStatuses(ctx, before); err != nil {
		return err
	}
	if s.cfg.MaxHistory >= 0 {
		excess, err := s.store.Excess(ctx, s.cfg.MaxHistory)
		if err != nil {
			return err
		}
		if excess.After(before) {
			s.cfg.Logger.Info().Time("before", excess).Int64("max_bytes", s.cfg.MaxHistory).
				Msg("pipelines: the history has reached its largest size: runs and stages that ended before this time are removed")
			before = excess
		}
	}
	err := s.inBatches(ctx, func() (bool, error) {
		n, err := s.store.ExpireRuns(ctx, before, expireBatch)
		return n >= expireBatch, err
	})
	if err != nil {
		return fmt.Errorf("removing old runs: %w", err)
	}
	err = s.inBatches(ctx, func() (bool, error) {
		n, err := s.store.ExpireStages(ctx, before, expireBatch)
		return n >= expireBatch, err
	})
	if err != nil {
		return err
	}
	const pages = 64 // of 4 KiB
	return s.inBatches(ctx, func() (bool, error) { return s.store.Shrink(ctx, pages) })
}

// inBatches repeats a batch of work until there is no more. Between two batches it waits for as
// long as a batch took, so that it uses at most half of the time of the database.
func (s *Service) inBatches(ctx context.Context, batch func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := batch()
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}
