package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// hostProcess is the group of processes of a step or of git, with its output.
type hostProcess struct {
	group   *process.Group
	reader  *os.File
	out     io.Writer
	drained chan struct{} // closed when the output has been read to its end
	killed  atomic.Bool   // the group has ended: its output should end too
}

// startProcess starts cmd through start, which records the process before it starts it, and copies its
// output to out. Both streams share one pipe, which keeps their order.
func startProcess(cmd *exec.Cmd, out io.Writer, start func() (*process.Group, error)) (*hostProcess, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	g, err := start()
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return nil, err
	}
	p := &hostProcess{group: g, reader: reader, out: out, drained: make(chan struct{})}
	go p.copyOutput()
	return p, nil
}

// copyOutput reads the output to its end. A process that escaped may hold the pipe open after the group
// was killed: then silence counts as the end.
func (p *hostProcess) copyOutput() {
	defer close(p.drained)
	buf := make([]byte, 32<<10)
	var limit time.Time
	for silent := 0; silent < 3; {
		if p.killed.Load() {
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

// finish ends the group after its first process has ended, and returns its state. The other
// processes have DrainTime to finish their output.
func (p *hostProcess) finish() *os.ProcessState {
	timer := time.NewTimer(steps.DrainTime)
	select {
	case <-p.drained:
	case <-timer.C:
	}
	timer.Stop()
	return p.stop(process.Patience{})
}

// stop ends the group and reads the rest of its output.
func (p *hostProcess) stop(with process.Patience) *os.ProcessState {
	state := p.group.Stop(with)
	p.killed.Store(true)
	_ = p.reader.SetReadDeadline(time.Now()) // wakes copyOutput
	<-p.drained
	_ = p.reader.Close()
	return state
}

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
func (r *run) followDetached(ctx context.Context, p *hostProcess, marker string) (*driver.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probed, ended := make(chan struct{}), make(chan struct{})
	requestStop, ok := r.Driver.Follow(steps.KindProcess+" "+marker, func(stop <-chan struct{}) {
		defer close(ended)
		p.follow(stop, cancel)
		select {
		case <-probed:
		case <-stop:
			cancel(steps.ErrEnded)
			<-probed // no process of the step may start after Cleanup
		}
	})
	if !ok {
		p.stop(process.Patience{})
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
		requestStop()
		<-ended
		return nil, err
	}
	return &driver.Result{Detached: true}, nil
}

// follow returns when the step has ended by itself. A value from stop makes it end the step.
func (p *hostProcess) follow(stop <-chan struct{}, cancel context.CancelCauseFunc) {
	drained := p.drained
	var exited <-chan struct{}
	for {
		select {
		case <-drained:
			// A service may put itself in the background and close its output. That does not end it.
			drained, exited = nil, p.group.Exited()
		case <-exited:
			p.group.Release()
			_ = p.reader.Close()
			return
		case <-stop:
			cancel(steps.ErrEnded)
			p.stop(process.Patience{})
			return
		}
	}
}
