// Package process starts processes in groups of their own and ends them with
// everything that they started in the group.
//
//	g, err := process.Start(ctx, cmd)
//	if err != nil {
//		return err
//	}
//	select {
//	case <-g.Exited():
//		state = g.End()
//	case <-ctx.Done():
//		state = g.Stop(grace)
//	}
//
// Start reading at group.go.
package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Group is a process and what it starts, as long as that stays in its process group;
// on Windows, a job object. On Linux the process is killed when the delegate dies.
// A Group is safe for concurrent use, and has to be ended.
type Group struct {
	cmd    *exec.Cmd
	job    job
	exited chan struct{} // the first process has ended
	reaped chan struct{} // its id may be somebody else's from now on
	then   func()        // what comes before the rest is killed; nil where somebody ends the group
	taken  atomic.Bool   // somebody ends the group
	how    chan ending   // closed when all has been said
}

// ending says how the owner of the process goes on after its end.
type ending int

const (
	killRest ending = iota // what is left of the group is killed first
	keepRest
)

// startPatience bounds how long a program is waited for that somebody writes.
const startPatience = 2 * time.Second

// Start starts cmd, whose streams must be files and which must have no context of
// its own. A program that has just been written may be held open for a moment by
// another process that is being started; it is tried again then.
func Start(ctx context.Context, cmd *exec.Cmd) (*Group, error) { return StartThen(ctx, cmd, nil) }

// StartThen is [Start] for a group that ends with its first process: when that has
// ended, and nobody has stopped the group before, then is called, what is left is
// killed, and Ended is closed. It spares who waits for the end the way there and
// back between two threads.
func StartThen(ctx context.Context, cmd *exec.Cmd, then func()) (*Group, error) {
	prepare(cmd)
	for wait := time.Millisecond; ; wait *= 2 {
		g := &Group{cmd: fresh(cmd), exited: make(chan struct{}), reaped: make(chan struct{}), then: then, how: make(chan ending, 1)}
		started := make(chan error, 1)
		go g.own(started)
		err := <-started
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, syscall.ETXTBSY) || wait > startPatience {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// fresh is cmd before its start was tried.
func fresh(cmd *exec.Cmd) *exec.Cmd {
	return &exec.Cmd{
		Path: cmd.Path, Args: cmd.Args, Dir: cmd.Dir, Env: cmd.Env,
		Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: cmd.SysProcAttr,
	}
}

// own is the process's life. It keeps its thread, because on Linux the process
// is tied to the thread that started it and not to the whole delegate.
func (g *Group) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(g.reaped)
	var err error
	g.job, err = startIn(g.cmd)
	started <- err
	if err != nil {
		return
	}
	g.await()
	close(g.exited)
	if g.then != nil && g.taken.CompareAndSwap(false, true) {
		defer g.job.close()
		g.then()
		close(g.how)
	}
	if <-g.how == killRest {
		g.kill()
	}
	_ = g.cmd.Wait() // the state tells everything
}

// Exited is closed when the first process has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Ended is closed when nothing of a group that was stopped, or ends by itself, is left
// to be killed. End gives the state then.
func (g *Group) Ended() <-chan struct{} { return g.reaped }

// End kills what is there of the group and returns how its first process ended.
// It may be called again.
func (g *Group) End() *os.ProcessState { return g.Stop(0) }

// Stop asks the group with SIGTERM to end, and kills what is left after the grace.
// With a grace of 0 nobody is asked, and whoever has ended already is not either. On
// Windows Ctrl-Break is sent, and the grace ends with the first process. The first
// call counts.
func (g *Group) Stop(grace time.Duration) *os.ProcessState {
	if !g.taken.CompareAndSwap(false, true) {
		<-g.reaped
		return g.cmd.ProcessState
	}
	defer g.job.close()
	if grace > 0 {
		g.terminate()
		if g.outlasts(grace) {
			g.kill()
		}
	} else {
		select {
		case <-g.exited: // the owner kills the rest, while the group's id is taken for sure
		default:
			g.kill()
		}
	}
	close(g.how)
	<-g.reaped
	return g.cmd.ProcessState
}

// outlasts waits for the group to have no member left, and reports whether the
// grace was over first.
func (g *Group) outlasts(grace time.Duration) bool {
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case <-g.exited:
	case <-over.C:
		return true
	}
	// A member that nobody has waited for counts, so the first one has to go. Its
	// number stays taken as long as another member of the group is there.
	g.how <- keepRest
	<-g.reaped
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for g.alive() {
		select {
		case <-look.C:
		case <-over.C:
			return true
		}
	}
	return false
}

// Code is how a process ended as a shell tells it: a signal counts as 128 plus its
// number.
func Code(s *os.ProcessState) int {
	if s == nil {
		return 255
	}
	if n, ok := signalOf(s); ok {
		return 128 + n
	}
	return s.ExitCode()
}
