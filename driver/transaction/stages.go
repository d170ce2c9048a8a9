package transaction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/rs/zerolog"
)

// ErrLedger is in the error if the ledger cannot be opened, for instance because another
// process uses it. Then every init is refused, so the delegate should end when
// [Stages.Recover] returns it.
var ErrLedger = errors.New("the ledger cannot be used")

// closedIDLifetime is how long the id of an ended transaction is remembered. A
// late init or execute for it is refused (rules T3, T4).
const closedIDLifetime = time.Hour

// Stages runs the stages of one driver as transactions and owns their ledger. It
// is safe for concurrent use. [Join] combines the stages of several drivers.
type Stages struct {
	driver driver.Driver
	config
	ledger *ledger
	routes map[string]task.Handler

	counters    counters
	closeDriver sync.Once
	lateLogs    sync.WaitGroup // of transactions that have ended

	mu       sync.Mutex
	open     map[string]*transaction
	closed   map[string]time.Time      // ended ids, with the time to forget them
	earlier  map[string]bool           // ids of the previous process that were cleaned up after a restart
	prunedAt time.Time                 // when old ids were last removed from closed
	stuck    map[*transaction]struct{} // ended, with resources that could not be removed yet
	shutdown bool
}

// New returns the stages of a driver, and takes the driver over: [Stages.Close]
// closes it. New does not touch the disk; if the ledger cannot be opened, Recover
// and every init fail. It panics if d is nil or an option is invalid.
func New(d driver.Driver, opts ...Option) *Stages {
	if d == nil {
		panic("transaction: New needs a driver")
	}
	c := config{
		dir: defaultDir(), lease: defaultLease, infras: []string{Local},
		log: zerolog.Nop(), now: time.Now, inFlight: inFlight,
	}
	c.delegate, _ = os.Hostname() // an empty name is valid
	for _, o := range opts {
		o(&c)
	}
	if c.dir == "" {
		panic("transaction: the directory of WithLedger is empty")
	}
	if c.slots == nil {
		c.slots = capacity.NewSlots(0)
	}
	if c.openLog == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 16
		c.http = &http.Client{Transport: t}
		c.openLog = sendLogs(c.http)
	}
	m := &Stages{
		driver: d, config: c, ledger: &ledger{dir: c.dir},
		open: map[string]*transaction{}, closed: map[string]time.Time{},
		stuck: map[*transaction]struct{}{},
	}
	m.openLog = m.counters.count(c.openLog)
	m.routes = m.newRoutes()
	return m
}

// Slots returns the slots that the transactions hold, see [WithSlots].
func (s *Stages) Slots() *capacity.Slots { return s.slots }

// Open returns the number of transactions between init and cleanup.
func (s *Stages) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// expired returns the open transactions whose lease has ended.
func (s *Stages) expired() []*transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.pruneClosedIDs(now)
	var out []*transaction
	for _, t := range s.open {
		if idle, resumed := t.idleSince(now); idle >= s.lease || resumed && idle >= resumeWait {
			out = append(out, t)
		}
	}
	return out
}

// findOrBlock returns the open transaction with one of the ids. If there is none,
// it refuses later inits for these ids, because their cleanup has come. The second
// result is a transaction whose earlier cleanup left resources.
func (s *Stages) findOrBlock(ids []string) (open, stuck *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.open[id]; t != nil {
			return t, nil
		}
	}
	s.blockIDs(ids...)
	for t := range s.stuck {
		if slices.Contains(ids, t.env.ID) {
			return nil, t
		}
	}
	return nil, nil
}

// blockIDs refuses inits with these ids for a while. The caller holds mu.
func (s *Stages) blockIDs(ids ...string) {
	now := s.now()
	for _, id := range ids {
		s.closed[id] = now.Add(closedIDLifetime)
	}
	if now.Sub(s.prunedAt) >= closedIDLifetime { // in case Maintain does not run
		s.pruneClosedIDs(now)
	}
}

// pruneClosedIDs forgets ended ids whose time is over. The caller holds mu.
func (s *Stages) pruneClosedIDs(now time.Time) {
	s.prunedAt = now
	for id, until := range s.closed {
		if now.After(until) {
			delete(s.closed, id)
		}
	}
}

// find returns the open transaction with one of the ids.
func (s *Stages) find(ids []string) (*transaction, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.open[id]; t != nil {
			return t, true
		}
	}
	return nil, false
}

// refusal returns the error for a task without an open transaction.
func (s *Stages) refusal(ids []string) error {
	if len(ids) == 0 {
		return task.BadRequest(errors.New("the task names no transaction: group_id or network is needed"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.open[id] != nil {
			return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s is being cleaned up", id)}
		}
		if _, ok := s.closed[id]; ok {
			return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
		}
	}
	for _, id := range ids {
		if s.earlier[id] {
			return &task.Error{Status: 409, Err: fmt.Errorf(
				"transaction %s has been cleaned up: this delegate (%s) was restarted while it ran", id, s.delegate)}
		}
	}
	return &task.Error{Status: 409, Err: fmt.Errorf(
		"this delegate (%s) does not own transaction %s: its init did not run here", s.delegate, ids[0])}
}

// openTaskLog opens the log that a task names.
func (s *Stages) openTaskLog(ctx context.Context, cfg *stage.LogConfig, key string) logger.TaskLog {
	t, _ := task.FromContext(ctx)
	target := logTargetOf(t, cfg, nil, key)
	return s.openLog(ctx, target.stream())
}
