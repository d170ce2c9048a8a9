package poller

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/rs/zerolog"
)

// finalCallTimeout bounds each call to the manager after the end of polling: the
// answer of a cancelled task, and the unregistration.
const finalCallTimeout = 5 * time.Second

// drainReportInterval is the time between two logs of the tasks that a drain waits for.
const drainReportInterval = 30 * time.Second

// session is one run of Poll. Its contexts end one after the other:
//
//	Poll's ctx ends, or Shutdown  -> draining is closed
//	no work left                  -> polling ends
//	the grace is over             -> polling and work end
//	finalCallTimeout later        -> delivery ends
type session struct {
	*Poller
	table    *taskTable
	interval time.Duration
	renamed  bool // the manager did not accept the stored id

	id         atomic.Pointer[string]
	refused    atomic.Pointer[client.Refusal] // since the last heartbeat
	draining   chan struct{}
	drainOne   sync.Once
	drainBegan time.Time     // set before draining is closed
	over       chan struct{} // closed when Poll returns

	polling     context.Context //nolint:containedctx // the session is the contexts' owner
	endPolling  context.CancelFunc
	work        context.Context //nolint:containedctx // as above
	endWork     context.CancelCauseFunc
	delivery    context.Context //nolint:containedctx // as above
	endDelivery context.CancelFunc

	workers     sync.WaitGroup // of the workers
	jobs        chan *job      // to an idle worker
	idleWorkers atomic.Int64   // number of idle workers
	pollNow     chan struct{}  // a task was answered: poll at once
	beatNow     chan struct{}  // the maintenance has changed: send a heartbeat at once
	lost        lostSignal
	perpetuals  *perpetuals // nil without perpetual tasks

	// Used by the poll loop only, to register again.
	registeredAt time.Time
	reregister   backOff
}

func newSession(ctx context.Context, p *Poller, executors int, id string, interval time.Duration) *session {
	base := context.WithoutCancel(ctx) // the end of ctx begins a drain, it does not cancel handlers
	s := &session{
		Poller:   p,
		table:    newTaskTable(executors),
		interval: interval,
		draining: make(chan struct{}),
		over:     make(chan struct{}),
		pollNow:  make(chan struct{}, 1),
		beatNow:  make(chan struct{}, 1),
		jobs:     make(chan *job),
	}
	s.id.Store(&id)
	s.polling, s.endPolling = context.WithCancel(base)
	s.work, s.endWork = context.WithCancelCause(base)
	s.delivery, s.endDelivery = context.WithCancel(base)
	s.perpetuals = newPerpetuals(s)
	return s
}

func (s *session) delegateID() string { return *s.id.Load() }

// run polls until ctx or a shutdown ends it, drains, and unregisters.
func (s *session) run(ctx context.Context) error {
	var loops, scheduling, perpetual sync.WaitGroup
	beating, endBeating := context.WithCancel(context.WithoutCancel(ctx))
	loops.Go(func() { s.heartbeats(beating) })
	loops.Go(func() { s.thresholds.Watch(beating) })
	s.resume() // before awaitEnd, which may find no work
	loops.Go(func() { s.awaitEnd(ctx) })
	if s.renamed && s.stages != nil {
		loops.Go(func() { s.stages.CleanUpUnclaimed(s.work) })
	}
	scheduling.Go(s.scheduleLoop)
	if s.perpetuals != nil {
		perpetual.Go(s.perpetuals.run)
	}
	stopDaemons := s.runDaemons()

	s.pollLoop()
	scheduling.Wait() // before workers: it starts workers
	s.workers.Wait()
	perpetual.Wait()
	stopDaemons() // after the tasks, which may use them
	endBeating()
	s.endPolling()
	s.endDelivery()
	loops.Wait()

	err := context.Cause(s.work)
	s.endWork(nil)
	s.unregister(ctx)
	return err
}

// drain stops taking new stages and standalone tasks.
func (s *session) drain() {
	s.drainOne.Do(func() {
		s.table.beginDrain()
		s.drainBegan = time.Now()
		s.logDrain(zerolog.InfoLevel, "draining: taking no new stages, waiting for tasks and transactions")
		close(s.draining)
	})
}

// logDrain logs the tasks that the drain waits for, and the time of the wait.
func (s *session) logDrain(level zerolog.Level, message string) {
	types := s.table.runningTypes()
	s.log.WithLevel(level).Int("transactions", s.slots.Used()).Int("tasks", len(types)).Strs("task_types", types).
		Stringer("waited", time.Since(s.drainBegan).Round(time.Second)).Msg(message)
}

func (s *session) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// cancelWork cancels the running tasks. Without any, it ends the drain normally.
func (s *session) cancelWork(cause error) {
	s.drain()
	if quiet, claims := s.table.idle(); !quiet || s.slots.Used() > 0 || !s.table.closeIfIdle(claims) {
		s.logDrain(zerolog.WarnLevel, "cancelling the running tasks")
		s.endWork(cause)
	}
	s.endPolling()
}

// awaitEnd waits for the begin of the drain, then for its end. It returns when
// polling has ended.
func (s *session) awaitEnd(ctx context.Context) {
	select {
	case <-ctx.Done():
		s.drain()
	case <-s.draining:
	case <-s.polling.Done():
	}
	s.awaitQuiet(ctx.Done())
	s.endPolling()
	if context.Cause(s.work) != nil {
		s.boundDelivery()
	}
}

// awaitQuiet returns when no task is active and no stage is open for the idle
// period. It also returns when the grace, which begins when ended is closed, is
// over; then it cancels the running tasks.
func (s *session) awaitQuiet(ended <-chan struct{}) {
	var idle, grace <-chan time.Time
	report := time.NewTicker(drainReportInterval)
	defer report.Stop()
	for last := 0; ; {
		tableChanged, slots := s.table.changed(), s.slots.Changed()
		switch quiet, claims := s.table.idle(); {
		case !quiet || s.slots.Used() > 0:
			idle = nil
		case s.idle == 0:
			if s.table.closeIfIdle(claims) {
				return
			}
			continue
		case idle == nil || claims != last: // a new list does not prolong the idle period
			idle, last = time.After(s.idle), claims
		}
		select {
		case <-tableChanged:
		case <-slots:
		case <-ended:
			ended = nil
			if s.grace != Unbounded {
				grace = time.After(s.grace)
			}
		case <-idle:
			if s.table.closeIfIdle(last) {
				return
			}
			idle = nil
		case <-s.polling.Done():
			return
		case <-report.C:
			s.logDrain(zerolog.InfoLevel, "still draining")
		case <-grace:
			s.log.Warn().Stringer("grace", s.grace).Msg("the grace of the drain has ended")
			s.cancelWork(ErrGraceExceeded)
			return
		}
	}
}

// boundDelivery gives pending answers a last chance.
func (s *session) boundDelivery() {
	t := time.NewTimer(finalCallTimeout)
	defer t.Stop()
	select {
	case <-t.C:
		s.endDelivery()
	case <-s.delivery.Done():
	}
}

func (s *session) unregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalCallTimeout)
	defer cancel()
	err := s.client.Unregister(ctx, &client.Unregistration{
		DelegateID: s.delegateID(), HostName: s.self.HostName, NG: true, DelegateType: s.self.DelegateType, IPAddress: s.self.IP,
	})
	switch {
	case err != nil && !errors.Is(err, client.ErrGone):
		s.log.Warn().Err(err).Msg("cannot unregister: the manager will miss the heartbeats")
	case s.state != nil:
		if err := s.state.setID(""); err != nil {
			s.log.Warn().Err(err).Msg("cannot remove the stored id: the next process will ask for it")
		}
	}
}
