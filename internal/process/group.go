// Package process starts processes in groups and ends a group with everything that it started.
//
//	g, err := process.Start(ctx, cmd, process.Options{})
//	if err != nil {
//		return err
//	}
//	select {
//	case <-g.Exited():
//		state = g.End()
//	case <-ctx.Done():
//		state = g.Stop(process.Patience{Grace: grace})
//	}
//
// A [Cgroup] or a marker ([Options]) also catches processes that leave the process group. A [Record]
// finds the processes of a delegate that has died.
//
// Start reading at group.go.
package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Group is a process and the processes that it starts: a process group, on Windows a job object. It is
// safe for concurrent use. The owner must call End, Stop or Release.
type Group struct {
	cmd     *exec.Cmd
	opts    Options
	cgroup  *Cgroup // nil if the group is not in a control group
	job     job
	exited  chan struct{} // closed when the first process has ended
	reaped  chan struct{} // closed when the first process was waited for: its id may be reused
	taken   atomic.Bool   // a call of Stop ends the group
	how     chan ending   // closed when reap knows everything
	release sync.Once
}

// Options change how a group starts and ends. The zero value is a process group that dies with the
// delegate, on Linux.
type Options struct {
	// Account is the user of the process. nil is the user of the delegate.
	Account *Account
	// Cgroup is the control group to start the process in. Start creates it. If the machine refuses
	// that, the process starts outside. nil is no control group.
	Cgroup *Cgroup
	// Outside runs before a process starts outside its Cgroup. After an error nothing starts. It may be
	// nil.
	Outside func() error
	// Marker is the value of [MarkerVariable] in the environment of the process. On Linux, Stop finds
	// processes that left the group by it, unless they are in a control group.
	Marker string
	// Survive lets the process continue when the delegate dies.
	Survive bool
	// Powerless takes the ambient capabilities of this process from the new one, on Linux.
	Powerless bool
	// Background lets the other processes of the group continue when the first one has ended.
	Background bool

	inside *Cgroup // the control group of another group
}

// Patience is how a group is asked to end before it is killed.
type Patience struct {
	// Grace is the time between SIGTERM and SIGKILL. With 0, and without Attempts, the group is killed
	// at once.
	Grace time.Duration
	// Attempts is how many times SIGTERM is sent, one every Interval. 0 counts as 1.
	Attempts int
	Interval time.Duration
}

// Whole returns the time between the first SIGTERM and SIGKILL. 0 means no SIGTERM.
func (p Patience) Whole() time.Duration {
	return max(p.Grace, time.Duration(p.Attempts)*p.Interval)
}

// ending is how reap treats the other processes of the group.
type ending int

const (
	killOthers ending = iota
	keepOthers
)

// startPatience limits how long Start waits for a program that another process holds open for writing.
const startPatience = 2 * time.Second

// aliveInterval is the time between two checks whether a group has ended.
const aliveInterval = 10 * time.Millisecond

// Start starts cmd, which must not have a context. Its streams must be files, unless the process may
// be waited for with their copies ([exec.Cmd], WaitDelay). A process that is being started may hold a
// program open that was just written; Start tries again then.
func Start(ctx context.Context, cmd *exec.Cmd, opts Options) (*Group, error) {
	type started struct {
		g   *Group
		err error
	}
	starts := make(chan started, 1)
	go func() {
		if !opts.Survive {
			// On Linux the process dies with the thread that started it, so this goroutine keeps the thread.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		if opts.Powerless {
			runtime.LockOSThread() // capabilities belong to a thread
			dropAmbient()
		}
		g, err := begin(ctx, cmd, opts)
		if opts.Powerless {
			runtime.UnlockOSThread()
		}
		starts <- started{g, err}
		if err == nil {
			g.wait()
		}
	}()
	s := <-starts
	return s.g, s.err
}

// Run is [Start] for a caller that waits for the end. It needs one thread less. It calls running when
// the process runs. When the process has ended, Run calls rest, kills the other processes of the group,
// and returns how the process ended. When ctx ends first, Run stops the group with the grace
// ([Group.Stop]).
func Run(ctx context.Context, cmd *exec.Cmd, grace time.Duration, running, rest func()) (*os.ProcessState, error) {
	runtime.LockOSThread() // see Start
	defer runtime.UnlockOSThread()
	g, err := begin(ctx, cmd, Options{})
	if err != nil {
		return nil, err
	}
	running()
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		g.Stop(Patience{Grace: grace})
	})
	g.await()
	close(g.exited)
	if g.taken.CompareAndSwap(false, true) {
		defer g.Release()
		rest()
		close(g.how)
	}
	g.reap()
	if !keep() {
		<-stopped
	}
	return g.cmd.ProcessState, nil
}

func begin(ctx context.Context, cmd *exec.Cmd, opts Options) (*Group, error) {
	cmd = fresh(cmd)
	prepare(cmd, opts)
	for wait := time.Millisecond; ; wait *= 2 {
		g := &Group{
			cmd: fresh(cmd), opts: opts,
			exited: make(chan struct{}), reaped: make(chan struct{}), how: make(chan ending, 1),
		}
		err := g.start()
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

// fresh copies cmd to the state before its start.
func fresh(cmd *exec.Cmd) *exec.Cmd {
	return &exec.Cmd{
		Path: cmd.Path, Args: cmd.Args, Dir: cmd.Dir, Env: cmd.Env, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		ExtraFiles: cmd.ExtraFiles, SysProcAttr: cmd.SysProcAttr, WaitDelay: cmd.WaitDelay,
	}
}

// Join starts cmd as the user of g, in the control group of g, as a Background group of its own. End of the new group
// kills only its process group. The processes that cmd leaves behind end with g at the latest; on
// Windows they end with Release.
func (g *Group) Join(ctx context.Context, cmd *exec.Cmd) (*Group, error) {
	return Start(ctx, cmd, Options{Account: g.opts.Account, Survive: g.opts.Survive, Background: true, inside: g.cgroup})
}

// wait follows the first process to its end.
func (g *Group) wait() {
	if g.opts.Background {
		g.await()
		_ = g.cmd.Wait()
		close(g.reaped)
		close(g.exited)
		return
	}
	g.await()
	close(g.exited)
	g.reap()
}

// reap waits for a process that has ended, after the fate of the other processes is decided.
func (g *Group) reap() {
	defer close(g.reaped)
	if <-g.how == killOthers {
		g.killGroup()
	}
	_ = g.cmd.Wait() // the state has the result
}

// Pid returns the id of the first process.
func (g *Group) Pid() int { return g.cmd.Process.Pid }

// Cgroup returns the control group that the group is in, or nil.
func (g *Group) Cgroup() *Cgroup { return g.cgroup }

// Env returns the environment of the first process.
func (g *Group) Env() []string { return g.cmd.Env }

// Dir returns the working directory of the first process.
func (g *Group) Dir() string { return g.cmd.Dir }

// Exited is closed when the first process has ended.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// End kills the group and returns how its first process ended. It may be called again.
func (g *Group) End() *os.ProcessState { return g.Stop(Patience{}) }

// Stop asks the group to end with SIGTERM, kills it when the patience is over, and returns how its
// first process ended. Without patience it kills at once. On Windows it sends Ctrl-Break, and the
// patience ends with the first process. Only the first call has an effect; the others wait for it.
func (g *Group) Stop(p Patience) *os.ProcessState {
	if !g.taken.CompareAndSwap(false, true) {
		<-g.reaped
		return g.cmd.ProcessState
	}
	defer g.Release()
	switch {
	case p.Whole() > 0:
		g.terminate()
		if g.outlasts(p) {
			g.killGroup()
		}
	case g.opts.Background || !g.hasExited():
		g.killGroup()
	default: // reap kills the others while the id of the group is still taken
	}
	close(g.how)
	<-g.reaped
	g.killEscaped()
	return g.cmd.ProcessState
}

func (g *Group) hasExited() bool {
	select {
	case <-g.exited:
		return true
	default:
		return false
	}
}

// outlasts waits until the group has no member. It reports whether the patience was over first.
func (g *Group) outlasts(p Patience) bool {
	over := time.NewTimer(p.Whole())
	defer over.Stop()
	var again <-chan time.Time
	if p.Attempts > 1 {
		t := time.NewTicker(p.Interval)
		defer t.Stop()
		again = t.C
	}
	look := time.NewTicker(aliveInterval)
	defer look.Stop()
	exited, sent := g.exited, 1
	for exited != nil || g.alive() {
		select {
		case <-exited:
			exited = nil
			if !g.opts.Background {
				// An unreaped process counts as alive. The id of the group stays taken as long as the group has
				// another member.
				g.how <- keepOthers
				<-g.reaped
			}
		case <-look.C:
		case <-again:
			if sent < p.Attempts {
				sent++
				g.terminate()
			}
		case <-over.C:
			return true
		}
	}
	return false
}

// State returns how the first process of a Background group ended, or nil while it runs.
func (g *Group) State() *os.ProcessState {
	select {
	case <-g.reaped:
		return g.cmd.ProcessState
	default:
		return nil
	}
}

// Release removes the control group if it is empty. On Windows it ends the job. It kills nothing else.
// End and Stop include it.
func (g *Group) Release() {
	g.release.Do(func() {
		g.job.close()
		_ = g.cgroup.Remove() // a control group with processes stays
	})
}

// Code returns how a process ended, as a shell does: 128 plus the number of a signal.
func Code(s *os.ProcessState) int {
	if s == nil {
		return 255
	}
	if n, ok := signalOf(s); ok {
		return 128 + n
	}
	return s.ExitCode()
}
