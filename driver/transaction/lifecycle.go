package transaction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Recover removes the resources that an earlier process left (rule T2). With
// [WithResume] it resumes transactions if possible. Call it before the
// first task. A resource that cannot be removed stays in the ledger, is logged,
// and [Stages.Maintain] tries again. Recover returns an error, [ErrLedger], only
// if the ledger cannot be opened: then no stage can run.
func (s *Stages) Recover(ctx context.Context) error {
	err := s.recover(ctx)
	if err == nil || errors.Is(err, ErrLedger) {
		return err
	}
	s.log.Error().Err(err).Str("driver", s.driver.Infra()).
		Msg("cannot remove all resources of an earlier process: trying again later")
	return nil
}

// recover returns every problem, also those that do not prevent stages.
func (s *Stages) recover(ctx context.Context) error {
	records, err := s.ledger.openRecords()
	problems := make([]error, len(records), len(records)+2)
	var wg sync.WaitGroup
	turns := make(chan struct{}, parallelRecovery)
	for i, l := range records {
		if s.tracksRecord(l.path) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			problems[i] = s.recoverOne(ctx, l)
		})
	}
	wg.Wait()
	problems = append(problems, err)
	if !errors.Is(err, ErrLedger) {
		s.dropNotes()
		problems = append(problems, s.sweepByLabels(ctx))
	}
	return errors.Join(problems...)
}

// parallelRecovery limits how many transactions are recovered at the same time. While an
// engine is away, they wait for it together and not one after the other.
const parallelRecovery = 16

func (s *Stages) recoverOne(ctx context.Context, l openRecord) error {
	if l.env.ID == "" && len(l.resources) == 0 {
		// The process died before the first entry, so no resource exists. The file must
		// not prevent a repeated init.
		if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an empty record: %w", err)
		}
		return nil
	}
	if s.resumeTransaction(ctx, l) {
		return nil
	}
	s.rememberEarlier(l.env.ID)
	t := s.restore(l)
	t.log.Warn().Int("resources", len(l.resources)).
		Msg("cleaning up a transaction of an earlier process")
	return t.sweep(ctx)
}

// rememberEarlier notes that a transaction of an earlier process is cleaned up, for the error of a late
// step. There are at most as many as the ledger had records at the start.
func (s *Stages) rememberEarlier(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.earlier == nil {
		s.earlier = map[string]bool{}
	}
	s.earlier[id] = true
}

// Maintain works until ctx ends: at each interval it cleans up transactions whose
// lease has ended (rule T6), retries resources that could not be removed, and
// removes resources without a record. An interval of 0 means one minute. If the
// earlier process was killed shortly before Recover, Maintain also looks once
// more within 10 s: an engine may still create resources for that process.
//
// End Maintain before Close: Close waits for a cleanup that Maintain runs.
func (s *Stages) Maintain(ctx context.Context, interval time.Duration) {
	if interval <= 0 {
		interval = time.Minute
	}
	for {
		wait := time.NewTimer(s.untilNextMaintenance(interval))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
			s.maintainOnce(ctx)
		}
	}
}

// untilNextMaintenance returns the interval, or the shorter time until a sweep
// is due.
func (s *Stages) untilNextMaintenance(interval time.Duration) time.Duration {
	if at := s.nextSweep(); !at.IsZero() {
		if d := at.Sub(s.now()); d > 0 {
			return min(interval, d)
		}
	}
	return interval
}

func (s *Stages) maintainOnce(ctx context.Context) {
	for _, t := range s.expired() {
		t.log.Warn().Dur("lease", s.lease).Msg("the lease of a transaction has ended: cleaning up")
		if err := t.close(ctx); err != nil {
			t.logCleanup(err)
		}
	}
	for _, t := range s.unfinished() {
		if err := t.sweep(ctx); err != nil {
			t.logCleanup(err)
		}
	}
	if err := s.sweepByLabels(ctx); err != nil {
		s.log.Error().Err(err).Msg("cleanup failed")
	}
}

func (t *transaction) logCleanup(err error) { t.log.Error().Err(err).Msg("cleanup failed") }

// awaitLogs waits for the logs of transactions that have ended.
func (s *Stages) awaitLogs(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.lateLogs.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.log.Warn().Msg("ending before the log service has all logs")
	}
}

// Close ends every open transaction: it stops running steps, cleans up, closes
// the ledger, and closes the driver if the driver is an [io.Closer]. From then on
// inits are refused. The error names the resources that could not be removed;
// Recover of the next process tries again.
func (s *Stages) Close(ctx context.Context) error {
	s.mu.Lock()
	s.shutdown = true
	var all []*transaction
	for _, t := range s.open {
		all = append(all, t)
	}
	s.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, t := range all {
		wg.Go(func() { errs[i] = t.close(ctx) })
	}
	wg.Wait()
	for _, t := range s.unfinished() {
		t.abandon(ctx)
	}
	s.awaitLogs(ctx)
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	s.dropNotes()
	errs = append(errs, s.ledger.close())
	if c, ok := s.driver.(io.Closer); ok {
		s.closeDriver.Do(func() { errs = append(errs, c.Close()) })
	}
	return errors.Join(errs...)
}
