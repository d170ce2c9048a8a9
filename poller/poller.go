package poller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
)

// The errors that Poll may return, for [errors.Is].
var (
	// ErrShutdown: Shutdown has been called before Poll.
	ErrShutdown = errors.New("the poller has been shut down")
	// ErrGraceExceeded: the grace of a drain has ended, or a second signal came.
	// Running tasks were cancelled, or transactions were still open.
	ErrGraceExceeded = errors.New("the grace of the shutdown has ended before all work was done")
)

var errRunning = errors.New("the poller is polling already")

// Poller is a delegate. Its methods are safe for concurrent use.
type Poller struct {
	client client.Client
	router *router.Router
	config
	counters counters
	turns    lastTurns

	mu       sync.Mutex
	session  *session // while Poll runs
	shutdown bool
	// maintenance is the reason of the maintenance, or empty.
	maintenance string
	renamed     bool // the manager did not accept the stored id
	// Of a Run: nil outside.
	stopRegistering context.CancelCauseFunc
	runOver         chan struct{}

	recovering chan struct{} // holds one element while stages are recovered
	recovered  atomic.Bool
}

// New returns a poller. It panics if c or r is nil, or if both [WithSlots] and
// [WithStages] are given.
func New(c client.Client, r *router.Router, opts ...Option) *Poller {
	if c == nil || r == nil {
		panic("poller: New needs a client and a router")
	}
	p := &Poller{client: c, router: r, config: defaults(), recovering: make(chan struct{}, 1)}
	for _, o := range opts {
		o(&p.config)
	}
	if _, ok := c.(client.Daemons); p.daemons != nil && !ok {
		panic("poller: WithDaemons needs a client that implements client.Daemons")
	}
	p.log = logger.Labels{Delegate: p.name}.Apply(p.log)
	switch {
	case p.stages != nil && p.slots != nil:
		panic("poller: WithStages brings slots: leave out WithSlots")
	case p.stages != nil:
		p.slots = p.stages.Slots()
	case p.slots == nil:
		p.slots = capacity.NewSlots(0)
	}
	return p
}

// Register announces the delegate to the manager and returns the id that the
// manager assigned. It sends the name, the tags and the task types that the router
// has routes for, and reports the capacity if it is bounded. If the manager
// rejects the capacity report, Register logs a warning and continues. With
// [WithState] it asks for the previous id. With [WithStages] it recovers the
// stages first, once.
func (p *Poller) Register(ctx context.Context) (*client.Delegate, error) {
	if err := p.recoverStages(ctx); err != nil {
		return nil, err
	}
	if p.state == nil {
		return p.register(ctx, "", p.maintained() != nil)
	}
	old, err := p.state.id()
	if err != nil {
		p.log.Warn().Err(err).Msg("the delegate gets a new id: its stored id cannot be read")
	}
	d, err := p.register(ctx, old, p.maintained() != nil)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.renamed = old != "" && d.ID != old
	p.mu.Unlock()
	if err := p.state.setID(d.ID); err != nil {
		p.log.Warn().Err(err).Msg("a restarted delegate will get a new id: this one cannot be stored")
	}
	return d, nil
}

// Poll sends heartbeats, takes tasks and answers them until ctx ends. Then it
// drains (see the package documentation), unregisters, and closes the stages of
// [WithStages]. At most parallelExecutors inits, as many executes, cleanups and
// standalone tasks run at once. id is the id that Register returned. A manager that does not hold polls is
// polled every interval, plus or minus a fifth, and at once after a task. An
// interval of 0 means 1 s.
//
// It returns nil if all work was finished. Otherwise it returns
// [ErrGraceExceeded], [ErrShutdown], an error about an invalid argument or about a
// Poll or Run that runs already, or the error of a failed cleanup. Failed calls to the manager do not
// end Poll: it backs off, and registers again when the manager does not know the
// delegate any more (rule C4).
//
// A handler that ignores its context delays the return of Poll: Go cannot end it.
func (p *Poller) Poll(ctx context.Context, parallelExecutors int, id string, interval time.Duration) error {
	switch {
	case parallelExecutors < 1:
		return fmt.Errorf("poller: %d parallel executors: at least 1 is needed", parallelExecutors)
	case id == "":
		return errors.New("poller: the delegate's id is empty: pass the one that Register returned")
	case interval < 0:
		return fmt.Errorf("poller: the interval %s is negative", interval)
	case interval == 0:
		interval = defaultInterval
	}
	if err := p.recoverStages(ctx); err != nil {
		return err
	}
	return p.poll(ctx, parallelExecutors, id, interval, p.maintainStages(ctx))
}

// poll polls until ctx ends and closes the stages, which are maintained until it
// calls stopMaintenance.
func (p *Poller) poll(ctx context.Context, executors int, id string, interval time.Duration, stopMaintenance func()) error {
	s, err := p.begin(ctx, executors, id, interval)
	if err != nil {
		stopMaintenance()
		if errors.Is(err, ErrShutdown) {
			err = errors.Join(err, p.closeStages(ctx))
		}
		return err
	}
	defer p.end(s)
	err = s.run(ctx)
	stopMaintenance()
	return errors.Join(err, p.closeStages(ctx))
}

// Shutdown begins a drain and returns when Poll or Run is about to return. If ctx
// ends first, Shutdown cancels the running tasks, waits for their handlers, and
// returns the error of ctx. If neither Poll nor Run is running it returns nil. A
// later Poll or Run returns [ErrShutdown].
func (p *Poller) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	p.shutdown = true
	s, over := p.session, p.runOver
	if p.stopRegistering != nil {
		p.stopRegistering(ErrShutdown)
	}
	p.mu.Unlock()
	switch {
	case s != nil:
		over = s.over
		s.drain()
	case over == nil:
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		if s != nil {
			s.cancelWork(ErrGraceExceeded)
		}
		<-over
		return ctx.Err()
	}
}

func (p *Poller) begin(ctx context.Context, executors int, id string, interval time.Duration) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.shutdown:
		return nil, ErrShutdown
	case p.session != nil:
		return nil, errRunning
	}
	p.session = newSession(ctx, p, executors, id, interval)
	p.turns.heartbeat.now() // not the turns of an earlier Poll
	p.turns.poll.now()
	p.session.renamed, p.renamed = p.renamed, false
	return p.session, nil
}

func (p *Poller) end(s *session) {
	p.mu.Lock()
	p.session = nil
	p.mu.Unlock()
	close(s.over)
}
