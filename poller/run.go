package poller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/delegate-io/dlite/client"
)

// Run is the whole life of a delegate: it recovers the stages ([WithStages]),
// registers, polls, drains and closes the stages. In each pool of executors at
// most executors tasks run at once. While the manager cannot be reached, Run tries
// to register again, with back-off. It drains when ctx ends, on the first signal
// of [WithSignals], or when [Poller.Shutdown] is called.
//
// Run returns nil after a signal or a Shutdown if all work was finished. It returns
// an error if the stages cannot run, if the manager refuses the registration, if
// ctx ends before the delegate is registered, and otherwise the errors of
// [Poller.Poll].
func (p *Poller) Run(ctx context.Context, executors int) error {
	if executors < 1 {
		return fmt.Errorf("poller: %d parallel executors: at least 1 is needed", executors)
	}
	registering, stopRegistering := context.WithCancelCause(ctx)
	defer stopRegistering(nil)
	over, err := p.beginRun(stopRegistering)
	if err != nil {
		return err
	}
	stopSignals := p.watchSignals()
	defer stopSignals() // last: a signal's Shutdown waits until over is closed
	defer close(over)
	defer p.endRun()

	err = p.run(ctx, registering, executors)
	if errors.Is(err, ErrShutdown) {
		err = nil // a signal or Shutdown came before the first poll
	}
	if err != nil {
		p.log.Error().Err(err).Msg("the delegate has stopped")
	} else {
		p.log.Info().Msg("the delegate has stopped: all work is done")
	}
	return err
}

func (p *Poller) run(ctx, registering context.Context, executors int) error {
	if err := p.recoverStages(registering); err != nil {
		return errors.Join(causeOr(registering, err), p.closeStages(ctx))
	}
	stop := p.maintainStages(ctx)
	info, err := p.registerWithRetries(registering)
	if err != nil {
		stop()
		return errors.Join(causeOr(registering, err), p.closeStages(ctx))
	}
	return p.poll(ctx, executors, info.ID, p.interval, stop)
}

// causeOr returns ErrShutdown if that ended the registration, otherwise err.
func causeOr(registering context.Context, err error) error {
	if cause := context.Cause(registering); errors.Is(cause, ErrShutdown) {
		return cause
	}
	return err
}

// beginRun makes Shutdown reach a registration that is under way. The caller
// closes the returned channel at the end of Run.
func (p *Poller) beginRun(stopRegistering context.CancelCauseFunc) (chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.shutdown:
		return nil, ErrShutdown
	case p.runOver != nil:
		return nil, errRunning
	}
	over := make(chan struct{})
	p.stopRegistering, p.runOver = stopRegistering, over
	return over, nil
}

func (p *Poller) endRun() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopRegistering, p.runOver = nil, nil
}

// Bounds of the pauses between attempts to register.
const (
	firstRegisterPause   = time.Second
	longestRegisterPause = 30 * time.Second
)

// registerWithRetries registers. While the manager cannot be reached it tries
// again: the delegate may start before the manager.
func (p *Poller) registerWithRetries(ctx context.Context) (*client.Delegate, error) {
	return backoff.Retry(ctx, func() (*client.Delegate, error) {
		info, err := p.Register(ctx)
		if err != nil && !errors.Is(err, client.ErrRetryable) {
			err = backoff.Permanent(err)
		}
		return info, err
	}, backoff.WithBackOff(newBackOff(firstRegisterPause, longestRegisterPause)), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, pause time.Duration) {
			p.log.Warn().Err(err).Stringer("next_attempt_in", pause.Round(time.Millisecond)).Msg("cannot reach the manager: trying again")
		}))
}

// WithSignals has [Poller.Run] handle signals of the process, for instance
// os.Interrupt and syscall.SIGTERM. The first signal drains: the delegate takes no
// new stages, finishes the open ones and stops. [WithGrace] limits its time; without
// that option there is no limit. The second signal cancels the running tasks and cleans
// up. The default handles none.
func WithSignals(signals ...os.Signal) Option {
	return func(c *config) { c.signals = signals }
}

// watchSignals handles signals until the returned function is called.
func (p *Poller) watchSignals() (stop func()) {
	if len(p.signals) == 0 {
		return func() {}
	}
	received := make(chan os.Signal, 2)
	signal.Notify(received, p.signals...)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { p.handleSignals(received, done) })
	return func() {
		signal.Stop(received)
		close(done)
		running.Wait()
	}
}

func (p *Poller) handleSignals(received <-chan os.Signal, done <-chan struct{}) {
	select {
	case s := <-received:
		p.log.Info().Stringer("signal", s).Msg("received a signal: another one cancels the running tasks")
	case <-done:
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var shutdown sync.WaitGroup
	shutdown.Go(func() { _ = p.Shutdown(ctx) }) // Poll returns the error
	var grace <-chan time.Time
	if p.graceGiven && p.grace != Unbounded {
		grace = time.After(p.grace)
	}
	select {
	case s := <-received:
		p.log.Warn().Stringer("signal", s).Msg("cancelling the running tasks after a second signal")
		cancel()
	case <-grace:
		p.log.Warn().Stringer("grace", p.grace).Msg("cancelling the running tasks: the grace of the drain has ended")
		cancel()
	case <-done:
	}
	shutdown.Wait()
}
