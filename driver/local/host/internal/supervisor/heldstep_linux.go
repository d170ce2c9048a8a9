package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/process"
)

// heldStep is a step of a supervisor, until the transaction ends.
type heldStep struct {
	detach  bool
	started time.Time
	out     *spool
	p       *process.Piped
	stop    chan struct{} // closed by the first request to stop, after with was set
	asked   sync.Once
	with    process.Patience
	over    chan struct{} // closed when the step has ended, after code was set
	code    int

	mu     sync.Mutex
	reader *os.File // the connection that gets the output; guarded by mu
}

// start starts the process of a step.
func (s *supervisor) start(o *Order) (*heldStep, error) {
	st := &heldStep{detach: o.Detach, out: newSpool(), stop: make(chan struct{}), over: make(chan struct{})}
	s.mu.Lock()
	if _, ok := s.steps[o.ID]; ok {
		s.mu.Unlock()
		return nil, errors.New("a later delegate has taken over")
	}
	s.active++ // from here on no end of another step kills unknown processes
	s.mu.Unlock()
	err := st.launch(s, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.active--
		return nil, err
	}
	s.steps[o.ID] = st
	go s.follow(st)
	return st, nil
}

func (st *heldStep) launch(s *supervisor, o *Order) error {
	account := s.account
	if o.User != "" {
		var err error
		if account, err = process.FindAccount(o.User); err != nil {
			return err
		}
	}
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("working directory %q is not a directory of this machine", o.Dir)
	}
	file := fmt.Sprintf("/proc/self/fd/%d", programFD)
	if !o.Own {
		var err error
		if file, err = process.LookPath(o.Args[0], o.Dir, o.Env); err != nil {
			return err
		}
	}
	cmd := &exec.Cmd{Path: file, Args: o.Args, Dir: o.Dir, Env: o.Env}
	opts := process.Options{Account: account, Marker: o.ID, Survive: true, Background: o.Detach, Powerless: true}
	p, err := process.StartPiped(cmd, st.out, func() (*process.Group, error) {
		g, err := process.Start(context.Background(), cmd, opts)
		if err == nil {
			s.children.add(g.Pid())
		}
		return g, err
	})
	st.p, st.started = p, time.Now()
	if o.Own && errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("the user of the step may not execute the program of the delegate: set its mode to 0755: %w", err)
	}
	return err
}

// follow waits for the end of a step. Without other steps, it then kills all processes of the namespace:
// they escaped from steps that have ended.
func (s *supervisor) follow(st *heldStep) {
	code, stopped := st.watch()
	st.code = code
	s.children.remove(st.p.Group.Pid())
	s.mu.Lock()
	// A detached step that ended by itself may have become a daemon that nothing recognises.
	if !st.detach || stopped {
		s.active--
	}
	if s.active == 0 {
		killOthers()
	}
	st.out.close()
	s.keep(st)
	s.mu.Unlock()
	close(st.over)
}

// watch returns the exit code of the step, and whether the step was stopped.
func (st *heldStep) watch() (code int, stopped bool) {
	switch {
	case !st.p.Await(st.stop):
		return process.Code(st.p.Stop(st.with)), true
	case st.detach:
		st.p.Release()
		return process.Code(st.p.Group.State()), false
	default:
		return process.Code(st.p.Finish()), false
	}
}

// requestStop makes watch stop the step. Only the first request counts.
func (st *heldStep) requestStop(with process.Patience) {
	st.asked.Do(func() {
		st.with = with
		close(st.stop)
	})
}

// serve sends the output of the step from the beginning, and its end, to a driver, and obeys its calls.
func (st *heldStep) serve(conn *os.File) {
	st.mu.Lock()
	if st.reader != nil {
		_ = st.reader.Close() // an earlier driver that does not answer
	}
	st.reader = conn
	at, dropped := st.out.begin()
	st.mu.Unlock()
	w := &connWriter{conn: conn}
	gone := make(chan struct{})
	defer func() {
		_ = conn.Close()
		<-gone
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.reader == conn {
			st.reader = nil
			st.out.leave()
		}
	}()
	go func() {
		defer close(gone)
		st.obey(conn, w)
	}()
	if w.send(Event{Started: &st.started}) != nil {
		return
	}
	if dropped > 0 && w.output([]byte(strings.Repeat("\n", dropped))) != nil {
		return
	}
	st.send(w, at, gone)
}

// send sends output from a position on, and then the end of the step.
func (st *heldStep) send(w *connWriter, at int64, gone <-chan struct{}) {
	buf := make([]byte, 0, 64<<10)
	exited := st.p.Group.Exited()
	for {
		out, wait, ended := st.out.next(at, buf)
		switch {
		case len(out) > 0:
			if w.output(out) != nil {
				return
			}
			at += int64(len(out))
			st.out.advance(at)
		case ended:
			<-st.over
			_ = w.send(Event{Ended: &st.code})
			return
		default:
			select {
			case <-wait:
			case <-gone:
				return
			case <-exited:
				exited = nil
				if st.detach && w.send(Event{Exited: st.exit()}) != nil {
					return
				}
			}
		}
	}
}

func (st *heldStep) exit() *Exit {
	return &Exit{Code: process.Code(st.p.Group.State()), Remains: st.p.Group.Remains()}
}

// obey carries out the calls of a driver until it goes away.
func (st *heldStep) obey(conn *os.File, w *connWriter) {
	var checks sync.WaitGroup
	defer checks.Wait()
	cancel := func() {}
	defer func() { cancel() }()
	for {
		var c Call
		if err := Receive(conn, &c); err != nil {
			return
		}
		cancel() // one check runs at a time
		cancel = func() {}
		switch {
		case c.Stop != nil:
			st.requestStop(*c.Stop)
		case len(c.Check) > 0:
			cancel = st.beginCheck(&checks, c.Check, w)
		}
	}
}

// beginCheck runs the command of a readiness check beside the step, until it ends or stop is called.
func (st *heldStep) beginCheck(checks *sync.WaitGroup, argv []string, w *connWriter) (stop func()) {
	ctx, stop := context.WithCancel(context.Background())
	checks.Go(func() {
		code, output, err := st.p.Check(ctx, argv)
		r := &Checked{Code: code, Output: output}
		if err != nil {
			r.Error = err.Error()
		}
		_ = w.send(Event{Checked: r})
	})
	return stop
}

// connWriter serializes the frames to a driver.
type connWriter struct {
	mu   sync.Mutex
	conn *os.File
}

func (w *connWriter) send(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Send(w.conn, e)
}

func (w *connWriter) output(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(b) > 0 {
		n := min(len(b), maxFrame)
		if err := writeFrame(w.conn, FrameOutput, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
