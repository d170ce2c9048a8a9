package host

import (
	"context"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// patience returns the signals and times with which the driver stops steps (rules D4 and T7).
func (d *Driver) patience() process.Patience {
	cfg := d.shared.Config
	return process.Patience{Grace: cfg.Grace, Attempts: cfg.TermAttempts, Interval: cfg.TermInterval}
}

// patience returns the signals and times with which the driver stops the step.
func (r *run) patience() process.Patience {
	with := r.d.patience()
	with.Grace = r.Grace()
	return with
}

// followDetached waits until a detached step is ready. The step then runs until Cleanup.
func (r *run) followDetached(ctx context.Context, p *process.Piped, marker string) (*driver.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probed, ended := make(chan struct{}), make(chan struct{})
	requestStop, ok := r.Driver.Follow(steps.KindProcess+" "+marker, func(stop <-chan struct{}) {
		defer close(ended)
		if p.Await(stop) {
			p.Release()
		} else {
			cancel(steps.ErrEnded)
			p.Stop(process.Patience{})
		}
		select {
		case <-probed:
		case <-stop:
			cancel(steps.ErrEnded)
			<-probed // no process of the step may start after Cleanup
		}
	})
	if !ok {
		p.Stop(process.Patience{})
		return nil, steps.ErrClosed
	}
	err := r.AwaitReady(ctx, &hostService{p: p})
	if err == nil {
		err = r.Announce(steps.Service{Address: steps.Loopback, Host: true})
	}
	if err != nil {
		p.Stop(r.patience())
	}
	close(probed)
	if err != nil {
		requestStop()
		<-ended
		return nil, err
	}
	return &driver.Result{Detached: true}, nil
}
