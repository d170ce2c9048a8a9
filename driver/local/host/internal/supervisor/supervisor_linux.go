package supervisor

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/delegate-io/dlite/internal/process"
)

const (
	// handshakeFD is the supervisor's end of a connection to the driver that starts it.
	handshakeFD = 3
	// programFD is the program of that driver. The supervisor itself may be another program, and its steps may
	// not reach the file by its path.
	programFD = 4
	// endedLimit limits the output of ended steps that a supervisor holds, in bytes.
	endedLimit = 32 << 20
)

// supervise is the whole life of a supervisor.
func supervise() {
	ignoreSteps()
	driver := os.NewFile(handshakeFD, "driver")
	// Steps inherit no files, also none that the delegate has inherited.
	if unix.CloseRange(handshakeFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil { // Linux before 5.11
		unix.CloseOnExec(handshakeFD)
		unix.CloseOnExec(programFD)
	}
	s, err := newSupervisor(driver)
	if err != nil {
		_ = Send(driver, Event{Error: err.Error()})
		os.Exit(1)
	}
	// The driver has recorded this process. If it was killed meanwhile, the next one connects to the socket.
	_ = Send(driver, Event{Done: true})
	_ = driver.Close()
	if s.listener != nil {
		s.serve()
	}
	os.Exit(0)
}

// supervisor starts the host steps of a transaction and holds their output and exit codes. It is the
// first process of its PID namespace: when it ends, the kernel kills all its steps.
type supervisor struct {
	account  *process.Account // runs steps that name no user; nil is the supervisor's own user
	listener *listener
	children children
	drivers  atomic.Int32 // connections

	mu     sync.Mutex
	steps  map[string]*heldStep // by id, nil for one that may not start; guarded by mu
	ended  []*heldStep          // in the order of their ends; guarded by mu
	active int                  // steps whose processes may run; guarded by mu
}

// newSupervisor waits until the driver has recorded this process, and prepares its namespaces. If the
// driver dies earlier, nothing was changed.
func newSupervisor(driver *os.File) (*supervisor, error) {
	_ = process.ProtectMemory() // steps of the same user must not trace this process
	var l Layout
	if err := Receive(driver, &l); err != nil {
		return nil, fmt.Errorf("read its layout: %w", err)
	}
	s := &supervisor{steps: map[string]*heldStep{}}
	if l.Socket != "" {
		var err error
		if s.listener, err = listen(l.Socket); err != nil {
			return nil, err
		}
	}
	delegate := openDirectories(l.Delegate) // before mounts hide them
	err := l.apply()
	if err == nil {
		go s.watchAbandoned(delegate, l.Abandoned)
		s.account, err = process.NumberedAccount(l.User)
	}
	return s, err
}

// serve accepts drivers until the supervisor is killed.
func (s *supervisor) serve() {
	go s.children.reapOrphans()
	for {
		conn, err := s.listener.accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			if isDriver(conn) {
				s.drivers.Add(1)
				defer s.drivers.Add(-1)
				s.answer(conn)
			}
		}()
	}
}

// answer serves one connection.
func (s *supervisor) answer(conn *os.File) {
	var c Call
	if err := Receive(conn, &c); err != nil {
		return
	}
	switch {
	case c.Run != nil:
		st, err := s.start(c.Run)
		if err != nil {
			_ = Send(conn, Event{Error: err.Error(), NoAccess: errors.Is(err, os.ErrPermission)})
			return
		}
		st.serve(conn)
	case c.Attach != "":
		if st := s.find(c.Attach); st != nil {
			st.serve(conn)
			return
		}
		_ = Send(conn, Event{Error: "the step has not begun", Unknown: true})
	case c.End != nil:
		s.end(c.Only, *c.End)
		_ = Send(conn, Event{Done: true})
	}
}

// find returns the step with an id. If there is none, no step can get the id any more.
func (s *supervisor) find(id string) *heldStep {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.steps[id]
	s.steps[id] = st
	return st
}

// end stops one step or, without an id, all steps at the same time, and waits for their end.
func (s *supervisor) end(only string, with process.Patience) {
	var list []*heldStep
	s.mu.Lock()
	for id, st := range s.steps {
		if st != nil && (only == "" || only == id) {
			list = append(list, st)
		}
	}
	s.mu.Unlock()
	for _, st := range list {
		st.requestStop(with)
	}
	for _, st := range list {
		<-st.over
	}
}

// keep limits the output of ended steps. It drops the oldest output. The caller holds mu.
func (s *supervisor) keep(st *heldStep) {
	s.ended = append(s.ended, st)
	total := 0
	for _, old := range slices.Backward(s.ended) {
		if total += old.out.size(); total > endedLimit {
			old.out.empty()
		}
	}
}

// children are the processes for which a goroutine of this process waits.
type children struct {
	mu    sync.Mutex
	known map[int]bool // guarded by mu
}

func (c *children) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[int]bool{}
	}
	c.known[pid] = true
}

func (c *children) remove(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, pid)
}

// reapOrphans waits for processes whose parents have ended. A process that is still not waited for at
// the second look has no other goroutine that waits for it.
func (c *children) reapOrphans() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	seen := map[int]bool{}
	for {
		if len(seen) == 0 {
			<-signals
		}
		<-time.After(orphanPause)
		next := map[int]bool{}
		for _, pid := range zombies() {
			c.mu.Lock()
			known := c.known[pid]
			c.mu.Unlock()
			switch {
			case known:
			case seen[pid]:
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			default:
				next[pid] = true
			}
		}
		seen = next
	}
}

// orphanPause is the time between two looks for orphans.
const orphanPause = 500 * time.Millisecond
