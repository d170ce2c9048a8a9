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
func Start(ctx context.Context, cmd *exec.Cmd) (*Group, error) {
	type started struct {
		g   *Group
		err error
	}
	starts := make(chan started, 1)
	go func() {
		// It keeps its thread, because on Linux the process is tied to the thread that
		// started it and not to the whole delegate.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		g, err := begin(ctx, cmd)
		starts <- started{g, err}
		if err == nil {
			g.await()
			close(g.exited)
			g.reap()
		}
	}()
	s := <-starts
	return s.g, s.err
}

// Run is [Start] for who waits for the end all the same, which takes no second thread
// then. It calls running when the process runs. When that has ended, it calls rest,
// kills what is left of the group, and returns how the process ended. When ctx ends
// before that, it stops the group with the grace ([Group.Stop]).
func Run(ctx context.Context, cmd *exec.Cmd, grace time.Duration, running, rest func()) (*os.ProcessState, error) {
	runtime.LockOSThread() // as above
	defer runtime.UnlockOSThread()
	g, err := begin(ctx, cmd)
	if err != nil {
		return nil, err
	}
	running()
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		g.Stop(grace)
	})
	g.await()
	close(g.exited)
	if g.taken.CompareAndSwap(false, true) {
		defer g.job.close()
		rest()
		close(g.how)
	}
	g.reap()
	if !keep() {
		<-stopped
	}
	return g.cmd.ProcessState, nil
}

func begin(ctx context.Context, cmd *exec.Cmd) (*Group, error) {
	prepare(cmd)
	for wait := time.Millisecond; ; wait *= 2 {
		g := &Group{cmd: fresh(cmd), exited: make(chan struct{}), reaped: make(chan struct{}), how: make(chan ending, 1)}
		var err error
		if g.job, err = startIn(g.cmd); err == nil {
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

// reap waits for a process that has ended, once it is known what becomes of the rest.
func (g *Group) reap() {
	defer close(g.reaped)
	if <-g.how == killRest {
		g.kill()
	}
	_ = g.cmd.Wait() // the state tells everything
}

// Exited is closed when the first process has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

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
