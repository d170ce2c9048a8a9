package transaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/rs/zerolog"
)

// Defaults of the options.
const (
	DefaultLease          = 24 * time.Hour
	DefaultCleanupTimeout = 5 * time.Minute
	// ResumeWait is how long a transaction of an earlier process waits for its
	// manager to ask for it.
	ResumeWait = 10 * time.Minute
)

// ErrLedger says that the ledger cannot be opened, for instance because another process
// has it. Without it every init is refused, so [Manager.Recover] is the place to
// give up.
var ErrLedger = errors.New("the ledger cannot be used")

// rememberClosed is how long an id stays known after its cleanup, so that an
// init or execute that comes late is refused (SPEC T3, T4).
const rememberClosed = time.Hour

// Manager owns the transactions of a delegate and their ledger. Its methods are
// safe for concurrent use.
type Manager struct {
	driver driver.Driver
	config
	ledger *ledger

	counters counters

	mu       sync.Mutex
	open     map[string]*transaction
	closed   map[string]time.Time      // ids whose cleanup has come, until when
	forgotAt time.Time                 // when closed was last searched for what can go
	stuck    map[*transaction]struct{} // cleaned up but for resources that would not go
	shutdown bool
}

// Option configures a [Manager]. A value that makes no sense panics in [New].
type Option func(*config)

type config struct {
	dir      string
	slots    *capacity.Slots
	delegate string
	lease    time.Duration
	cleanup  time.Duration
	log      zerolog.Logger
	openLog  OpenLog
	logWait  time.Duration
	http     *http.Client // of the default openLog
	now      func() time.Time
	inFlight time.Duration
	resume   bool   // as the option says
	memory   string // the folder of the notes; as the option says
}

// WithLedger sets the ledger's folder, which only one process at a time can use.
// The default is dlite/transactions in the user's cache folder, or else in the
// folder for temporary files.
func WithLedger(dir string) Option { return func(c *config) { c.dir = dir } }

// WithSlots sets the slots that the poller takes from (SPEC Q1). A transaction
// keeps its slot until its cleanup is done. The default counts none.
func WithSlots(s *capacity.Slots) Option { return func(c *config) { c.slots = s } }

// WithDelegate sets the delegate's name for the labels on resources, and for an
// init's answer. The default is the host's name.
func WithDelegate(name string) Option { return func(c *config) { c.delegate = name } }

// WithLease sets how long a transaction may go untouched before it is cleaned up
// (SPEC T6). The default is 24 h.
func WithLease(d time.Duration) Option { return func(c *config) { c.lease = d } }

// WithCleanupTimeout bounds one attempt to clean up. What is left then is tried
// again later. The default is 5 minutes.
func WithCleanupTimeout(d time.Duration) Option { return func(c *config) { c.cleanup = d } }

// WithLogger sets the delegate's own log. The default is none.
func WithLogger(log zerolog.Logger) Option { return func(c *config) { c.log = log } }

// WithLog sets where the output of steps goes. The default is [ServiceLog] with
// a client of the manager's own, which obeys HTTP_PROXY and its companions.
func WithLog(open OpenLog) Option { return func(c *config) { c.openLog = open } }

// WithLogWait bounds how long the answer of an init or a step waits until its log
// is archived. While the log service is away the answer goes first; the log ends
// behind it, and the answer of the cleanup waits for it. A delegate that is killed
// in between loses what the log service did not have. With 0 no answer waits.
// The default is [DefaultLogWait].
func WithLogWait(d time.Duration) Option { return func(c *config) { c.logWait = d } }

// WithResume makes a transaction survive the death of the delegate's process
// (SPEC T5): Recover takes up those whose init had ended, instead of cleaning them
// up, where the driver is a [driver.Reattacher] and every background step can be
// followed further. When the manager then hands the task of a step out again, a
// step that still runs is followed to its end, one that had ended is answered as
// before, and one that cannot be followed fails with [driver.ErrLost]: no step is
// run twice. It needs a delegate that keeps its id and its tasks in mind, see
// poller.WithState. A transaction that nobody asks for within [ResumeWait] is
// cleaned up.
//
// What steps hand on may hold secrets, so it is kept in memory alone: dir is a
// folder in memory, and empty is /dev/shm. Where that is not in memory, as on
// systems other than Linux, nothing is taken up.
func WithResume(dir string) Option {
	return func(c *config) {
		c.resume, c.memory = true, cmp.Or(dir, defaultMemory)
	}
}

// WithClock replaces time.Now for leases.
func WithClock(now func() time.Time) Option { return func(c *config) { c.now = now } }

// New makes a manager of the transactions that d runs. It touches no disk yet;
// a ledger that cannot be had makes Recover and every init fail. It panics when
// d is nil.
func New(d driver.Driver, opts ...Option) *Manager {
	if d == nil {
		panic("transaction: New needs a driver")
	}
	c := config{
		dir: defaultDir(), lease: DefaultLease, cleanup: DefaultCleanupTimeout,
		log: zerolog.Nop(), now: time.Now, inFlight: inFlight, logWait: DefaultLogWait,
	}
	c.delegate, _ = os.Hostname() // no name is a name too
	for _, o := range opts {
		o(&c)
	}
	if c.dir == "" || c.lease <= 0 || c.cleanup <= 0 {
		panic(fmt.Sprintf("transaction: the ledger's folder is %q, the lease %s, the cleanup's time-out %s: "+
			"none may be empty or below 1 ns", c.dir, c.lease, c.cleanup))
	}
	if c.openLog == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 16
		c.http = &http.Client{Transport: t}
		c.openLog = ServiceLog(c.http)
	}
	m := &Manager{
		driver: d, config: c, ledger: &ledger{dir: c.dir},
		open: map[string]*transaction{}, closed: map[string]time.Time{},
		stuck: map[*transaction]struct{}{},
	}
	m.openLog = m.counters.count(c.openLog)
	return m
}

func defaultDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	return filepath.Join(base, "dlite", "transactions")
}

// Routes are the handlers of init, execute and cleanup under the names that both
// protocols have for stages on this machine. They go into a router.RouteMap.
func (m *Manager) Routes() map[string]task.Handler { return m.RoutesFor(Local) }

// Handlers are the three handlers of a transaction.
type Handlers struct {
	Init    task.Handler // data: stage.InitRequest
	Execute task.Handler // data: stage.ExecuteRequest
	Cleanup task.Handler // data: stage.CleanupRequest
}

// Handlers returns the handlers, for routes under other names.
func (m *Manager) Handlers() Handlers {
	return Handlers{
		Init:    task.HandlerFunc(m.init),
		Execute: task.HandlerFunc(m.execute),
		Cleanup: task.HandlerFunc(m.clean),
	}
}

// Open counts the transactions between init and cleanup.
func (m *Manager) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// Recover removes what an earlier process left behind (SPEC T2), or takes it up
// where [WithResume] says so. Call it before the first task. Its error tells what could not be read or removed; that stays
// on record and is tried again by Tend. The delegate can work all the same,
// unless the ledger itself could not be opened, which is [ErrLedger].
func (m *Manager) Recover(ctx context.Context) error {
	lefts, err := m.ledger.leftovers()
	problems := make([]error, len(lefts), len(lefts)+2)
	var wg sync.WaitGroup
	turns := make(chan struct{}, parallelRecovery)
	for i, l := range lefts {
		if m.has(l.path) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			problems[i] = m.recoverOne(ctx, l)
		})
	}
	wg.Wait()
	problems = append(problems, err)
	if !errors.Is(err, ErrLedger) {
		m.dropNotes()
		problems = append(problems, m.sweepByLabels(ctx))
	}
	return errors.Join(problems...)
}

// parallelRecovery bounds how many transactions are recovered at once: together
// they wait once for an engine that is away.
const parallelRecovery = 16

func (m *Manager) recoverOne(ctx context.Context, l leftover) error {
	if l.env.ID == "" && len(l.resources) == 0 {
		// Its process died before the first entry was there, so nothing had begun. It
		// must not stand in the way when the same init comes again.
		if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an empty record: %w", err)
		}
		return nil
	}
	if m.takeUp(ctx, l) {
		return nil
	}
	t := m.restore(l)
	m.log.Warn().Str("transaction", t.env.ID).Int("resources", len(l.resources)).
		Msg("cleaning up what an earlier process left")
	return t.sweep(ctx)
}

// Tend cleans up transactions whose lease has ended (SPEC T6), tries again what
// could not be removed, and looks for what no record names, every so often until
// ctx ends. 0 is every minute. After a Recover that found the work of a process
// that was killed just before, it also looks once more within 10 s: an engine may
// still be making what that process asked for.
//
// End it before Close: a cleanup that it waits for holds Close back.
func (m *Manager) Tend(ctx context.Context, every time.Duration) {
	if every <= 0 {
		every = time.Minute
	}
	for {
		wait := time.NewTimer(m.untilTend(every))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
			m.tend(ctx)
		}
	}
}

// untilTend is the time until the next look, sooner when something is due.
func (m *Manager) untilTend(every time.Duration) time.Duration {
	if at := m.due(); !at.IsZero() {
		if d := at.Sub(m.now()); d > 0 {
			return min(every, d)
		}
	}
	return every
}

func (m *Manager) tend(ctx context.Context) {
	for _, t := range m.expired() {
		m.log.Warn().Str("transaction", t.env.ID).Dur("lease", m.lease).Msg("nobody has touched a transaction: cleaning up")
		if err := t.close(ctx); err != nil {
			m.logCleanup(t, err)
		}
	}
	for _, t := range m.unfinished() {
		if err := t.sweep(ctx); err != nil {
			m.logCleanup(t, err)
		}
	}
	if err := m.sweepByLabels(ctx); err != nil {
		m.log.Error().Err(err).Msg("could not clean up")
	}
}

func (m *Manager) logCleanup(t *transaction, err error) {
	m.log.Error().Str("transaction", t.env.ID).Str("error", t.secrets.Mask(err.Error())).Msg("could not clean up")
}

// Close ends every open transaction: it stops what runs, cleans up, and lets go
// of the ledger. Inits are refused from then on. Its error names what could not
// be removed; the next process's Recover tries again.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.shutdown = true
	var all []*transaction
	for _, t := range m.open {
		all = append(all, t)
	}
	m.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, t := range all {
		wg.Go(func() { errs[i] = t.close(ctx) })
	}
	wg.Wait()
	for _, t := range m.unfinished() {
		t.abandon(ctx)
	}
	if m.http != nil {
		m.http.CloseIdleConnections()
	}
	m.dropNotes()
	return errors.Join(errors.Join(errs...), m.ledger.close())
}

func (m *Manager) expired() []*transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.forget(now)
	var out []*transaction
	for _, t := range m.open {
		if idle, resumed := t.idleSince(now); idle >= m.lease || resumed && idle >= ResumeWait {
			out = append(out, t)
		}
	}
	return out
}

// findOrBar returns the open transaction that goes by one of the ids, or makes
// sure that none will be opened: the cleanup has come. The second result is one
// whose earlier cleanup left something behind.
func (m *Manager) findOrBar(ids []string) (open, stuck *transaction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if t := m.open[id]; t != nil {
			return t, nil
		}
	}
	m.bar(ids...)
	for t := range m.stuck {
		if slices.Contains(ids, t.env.ID) {
			return nil, t
		}
	}
	return nil, nil
}

// bar keeps ids from being opened again for a while. The caller holds mu.
func (m *Manager) bar(ids ...string) {
	now := m.now()
	for _, id := range ids {
		m.closed[id] = now.Add(rememberClosed)
	}
	if now.Sub(m.forgotAt) >= rememberClosed { // should nobody call Tend
		m.forget(now)
	}
}

// forget drops ids whose time is over. The caller holds mu.
func (m *Manager) forget(now time.Time) {
	m.forgotAt = now
	for id, until := range m.closed {
		if now.After(until) {
			delete(m.closed, id)
		}
	}
}

// find returns the open transaction that goes by one of the ids.
func (m *Manager) find(ids []string) (*transaction, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if t := m.open[id]; t != nil {
			return t, true
		}
	}
	return nil, false
}

// refusal is the answer to a task that comes for no open transaction.
func (m *Manager) refusal(ids []string) error {
	if len(ids) == 0 {
		return task.BadRequest(errors.New("the task names no transaction: group_id or network is needed"))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if m.open[id] != nil {
			return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s is being cleaned up", id)}
		}
		if _, ok := m.closed[id]; ok {
			return &task.Error{Status: 409, Err: fmt.Errorf("transaction %s has been cleaned up already", id)}
		}
	}
	return &task.Error{Status: 409, Err: fmt.Errorf(
		"this delegate (%s) does not own transaction %s: its init did not run here", m.delegate, ids[0])}
}

// resolveLog is the log of a task's step.
func (m *Manager) resolveLog(ctx context.Context, cfg *stage.LogConfig, key string) Log {
	t, _ := task.FromContext(ctx)
	return m.openLog(ctx, logTarget(t, cfg, key))
}
