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

// finalCalls bounds each thing that is said to the manager after the end: the
// answer of a cancelled task, and the unregistration.
const finalCalls = 5 * time.Second

// drainReportInterval is how often a drain logs for what it waits.
const drainReportInterval = 30 * time.Second

// session is one run of Poll. Its contexts end one after the other:
//
//	Poll's ctx ends, or Shutdown   -> draining is closed
//	nothing left to do             -> polling ends
//	the grace is over              -> polling and work end
//	finalCalls later               -> delivery ends, for the answers of before
type session struct {
	*Poller
	board    *board
	interval time.Duration
	renamed  bool // since an earlier process, see Stages.CleanUpUnclaimed

	id         atomic.Pointer[string]
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

	tasks  sync.WaitGroup // of the workers
	jobs   chan *job      // to a worker that has nothing to do
	parked atomic.Int64   // how many such there are
	nudge  chan struct{}  // a task has been answered: poll a plain manager at once
	lost   lostSignal

	// The poll loop's, for registering again.
	registeredAt time.Time
	reregister   backOff
}

func newSession(ctx context.Context, p *Poller, executors int, id string, interval time.Duration) *session {
	base := context.WithoutCancel(ctx) // the end of ctx begins a drain, it does not cancel handlers
	s := &session{
		Poller:   p,
		board:    newBoard(executors),
		interval: interval,
		draining: make(chan struct{}),
		over:     make(chan struct{}),
		nudge:    make(chan struct{}, 1),
		jobs:     make(chan *job),
	}
	s.id.Store(&id)
	s.polling, s.endPolling = context.WithCancel(base)
	s.work, s.endWork = context.WithCancelCause(base)
	s.delivery, s.endDelivery = context.WithCancel(base)
	return s
}

func (s *session) delegateID() string { return *s.id.Load() }

// run is Poll.
func (s *session) run(ctx context.Context) error {
	var loops, scheduling sync.WaitGroup
	beating, endBeating := context.WithCancel(context.WithoutCancel(ctx))
	loops.Go(func() { s.heartbeats(beating) })
	s.resume() // before awaitEnd: it may find nothing to do
	loops.Go(func() { s.awaitEnd(ctx) })
	if s.renamed && s.stages != nil {
		loops.Go(func() { s.stages.CleanUpUnclaimed(s.work) })
	}
	scheduling.Go(s.scheduleLoop)

	s.pollLoop()
	scheduling.Wait() // before tasks: it adds to them
	s.tasks.Wait()
	endBeating()
	s.endPolling()
	s.endDelivery()
	loops.Wait()

	err := context.Cause(s.work)
	s.endWork(nil)
	s.unregister(ctx)
	return err
}

// drain takes no new stages from now on.
func (s *session) drain() {
	s.drainOne.Do(func() {
		s.board.drain()
		s.drainBegan = time.Now()
		s.logDrain(zerolog.InfoLevel, "draining: taking no new stages, waiting for tasks and transactions")
		close(s.draining)
	})
}

// logDrain logs for what the drain waits, and for how long it has waited.
func (s *session) logDrain(level zerolog.Level, message string) {
	types := s.board.runningTypes()
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

// stop cancels what runs. With nothing to cancel it is the end of a drain like any
// other.
func (s *session) stop(cause error) {
	s.drain()
	if quiet, claims := s.board.quiet(); !quiet || s.slots.Used() > 0 || !s.board.retire(claims) {
		s.logDrain(zerolog.WarnLevel, "cancelling the running tasks")
		s.endWork(cause)
	}
	s.endPolling()
}

// awaitEnd waits for the beginning of the drain, then for its end. It returns
// when polling has ended.
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

// awaitQuiet returns when no task runs and no stage is open, and has been so for
// the idle period; or when the grace, which begins with ended, is over, after
// cancelling what runs.
func (s *session) awaitQuiet(ended <-chan struct{}) {
	var idle, grace <-chan time.Time
	report := time.NewTicker(drainReportInterval)
	defer report.Stop()
	for last := 0; ; {
		board, slots := s.board.changed(), s.slots.Changed()
		switch quiet, claims := s.board.quiet(); {
		case !quiet || s.slots.Used() > 0:
			idle = nil
		case s.idle == 0:
			if s.board.retire(claims) {
				return
			}
			continue
		case idle == nil || claims != last: // a list that comes in does not prolong the quiet
			idle, last = time.After(s.idle), claims
		}
		select {
		case <-board:
		case <-slots:
		case <-ended:
			ended = nil
			if s.grace != Unbounded {
				grace = time.After(s.grace)
			}
		case <-idle:
			if s.board.retire(last) {
				return
			}
			idle = nil
		case <-s.polling.Done():
			return
		case <-report.C:
			s.logDrain(zerolog.InfoLevel, "still draining")
		case <-grace:
			s.log.Warn().Stringer("grace", s.grace).Msg("the grace of the drain has ended")
			s.stop(ErrGraceExceeded)
			return
		}
	}
}

// boundDelivery gives the answers that are under way a last chance.
func (s *session) boundDelivery() {
	t := time.NewTimer(finalCalls)
	defer t.Stop()
	select {
	case <-t.C:
		s.endDelivery()
	case <-s.delivery.Done():
	}
}

func (s *session) unregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalCalls)
	defer cancel()
	err := s.client.Unregister(ctx, &client.Unregistration{
		DelegateID: s.delegateID(), HostName: s.host, NG: true, DelegateType: s.kind, IPAddress: s.ip,
	})
	switch {
	case err != nil && !errors.Is(err, client.ErrGone):
		s.log.Warn().Err(err).Msg("could not unregister: the manager will miss our heartbeats")
	case s.state != nil:
		if err := s.state.setID(""); err != nil {
			s.log.Warn().Err(err).Msg("the delegate will ask for an id that is gone")
		}
	}
}
