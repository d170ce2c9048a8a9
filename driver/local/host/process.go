package host

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// hostProcess is a step's first process and everything it started.
type hostProcess struct {
	group   *group
	reader  *os.File
	out     io.Writer
	exited  chan struct{} // the first process has ended
	drained chan struct{} // nobody writes any more
	ending  atomic.Bool   // nobody should write any more
}

// copy reads the output to its end. Once everybody who may write has been
// killed it takes silence for the end, since one that escaped may still hold
// the pipe.
func (p *hostProcess) copy() {
	defer close(p.drained)
	buf := make([]byte, 32<<10)
	var limit time.Time
	for silent := 0; silent < 3; {
		if p.ending.Load() {
			if limit.IsZero() {
				limit = time.Now().Add(10 * steps.DrainTime)
			}
			if time.Now().After(limit) {
				return
			}
			_ = p.reader.SetReadDeadline(time.Now().Add(steps.DrainTime / 20))
		}
		n, err := p.reader.Read(buf)
		_, _ = p.out.Write(buf[:n])
		switch {
		case err == nil:
			silent = 0
		case errors.Is(err, os.ErrDeadlineExceeded):
			silent++
		default:
			return
		}
	}
}

func (p *hostProcess) wait() {
	defer close(p.exited)
	_ = p.group.cmd.Wait() // the state tells everything
}

// finish reads the output to its end after the first process has exited, and
// ends what it left behind.
func (p *hostProcess) finish() {
	timer := time.NewTimer(steps.DrainTime)
	select {
	case <-p.drained:
	case <-timer.C:
	}
	timer.Stop()
	p.end()
}

// patience is how a step is asked to end before it is killed.
type patience struct {
	grace time.Duration
	// attempts is how often SIGTERM is sent, every interval; 0 counts as 1.
	attempts int
	interval time.Duration
}

// whole is the time between the first SIGTERM and SIGKILL; 0 is no SIGTERM.
func (p patience) whole() time.Duration {
	return max(p.grace, time.Duration(p.attempts)*p.interval)
}

// patience is what the driver has with a step of the host (SPEC D4, T7).
func (r *run) patience() patience {
	return patience{grace: r.Grace(), attempts: r.d.shared.Config.TermAttempts, interval: r.d.shared.Config.TermInterval}
}

// stop ends everything, politely when there is time for that.
func (p *hostProcess) stop(with patience) {
	if whole := with.whole(); whole > 0 {
		p.group.terminate()
		p.awaitEnd(with, whole)
	}
	p.end()
}

// awaitEnd returns when all have ended, or the time is over.
func (p *hostProcess) awaitEnd(with patience, whole time.Duration) {
	var again <-chan time.Time
	if with.attempts > 1 {
		t := time.NewTicker(with.interval)
		defer t.Stop()
		again = t.C
	}
	deadline := time.NewTimer(whole)
	tick := time.NewTicker(20 * time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	sent := 1
	for exited := p.exited; exited != nil || p.group.alive(); {
		select {
		case <-exited:
			exited = nil
		case <-tick.C:
		case <-again:
			if sent < with.attempts {
				sent++
				p.group.terminate()
			}
		case <-deadline.C:
			return
		}
	}
}

// end kills what is left and waits for it.
func (p *hostProcess) end() {
	p.group.kill()
	<-p.exited
	p.ending.Store(true)
	_ = p.reader.SetReadDeadline(time.Now()) // wakes copy
	<-p.drained
	_ = p.reader.Close()
	p.group.close()
}

// followHost lets a detached step go on until Cleanup, and returns when it is
// ready.
func (r *run) followHost(ctx context.Context, p *hostProcess, marker string) (*driver.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{}, 1)
	ask := func() {
		select {
		case stop <- struct{}{}:
		default:
		}
	}
	probed, ended := make(chan struct{}), make(chan struct{})
	ok := r.Driver.Follow(steps.KindProcess+" "+marker, ask, func() {
		defer close(ended)
		p.follow(stop, cancel)
		select {
		case <-probed:
		case <-stop:
			cancel(steps.ErrEnded)
			<-probed // nothing of the step may begin after Cleanup
		}
	})
	if !ok {
		p.stop(patience{})
		return nil, steps.ErrClosed
	}
	err := r.AwaitReady(ctx, &hostService{p: p})
	if err == nil {
		err = r.Announce(steps.Service{Address: steps.Loopback, Host: true})
	}
	if err != nil {
		p.stop(r.patience())
	}
	close(probed)
	if err != nil {
		ask()
		<-ended
		return nil, err
	}
	return &driver.Result{Detached: true}, nil
}

// follow returns when the step has ended by itself, or ends it after stop.
func (p *hostProcess) follow(stop <-chan struct{}, cancel context.CancelCauseFunc) {
	drained := p.drained
	var exited chan struct{}
	for {
		select {
		case <-drained:
			// A service may have put itself in the background and closed its
			// output: that is no reason to end it.
			drained, exited = nil, p.exited
		case <-exited:
			p.group.close()
			_ = p.reader.Close()
			return
		case <-stop:
			cancel(steps.ErrEnded)
			p.stop(patience{})
			return
		}
	}
}
