package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Errors of the manager's methods, for [errors.Is].
var (
	// ErrInvalid means that the request is not valid. The message says what to
	// change.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound means that the account has no such stage, task, schedule or
	// delegate, or that the manager has forgotten it.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that another stage or task of the account, or another step of the
	// stage, has the id.
	ErrConflict = errors.New("the id is taken")
	// ErrBudget means that the call would exceed a [Budget]. It may succeed later.
	ErrBudget = errors.New("the budget is used up")
	// ErrClosed means that the manager was closed before the call ended.
	ErrClosed = errors.New("the manager is closed")
	// ErrUnavailable means that the store cannot be reached or did not answer. The
	// change may have been made, or may be made later, but at most once.
	ErrUnavailable = journal.ErrUnavailable
)

// Store keeps the manager's state. Packages manager/sqlite and manager/redis open
// one.
type Store = journal.Log

// Config configures a [Manager]. Only Accounts is required.
type Config struct {
	// Accounts maps account ids to their secrets: 32 hexadecimal characters, or the
	// base64 of those.
	Accounts map[string]string

	// HeartbeatTimeout is the longest silence of a delegate. After it the manager
	// declares the delegate lost and its stages fail. Defaults to 60 seconds.
	HeartbeatTimeout time.Duration
	// AcquireTimeout is how long an offer to a delegate stands. After it the manager
	// offers the task to another delegate. Defaults to 30 seconds.
	AcquireTimeout time.Duration
	// AbortGrace is how long the manager waits for the answer of an aborted task
	// before it continues with the cleanup. It does not wait for a delegate that polls
	// without the parameter wait: such a delegate does not learn of the abort. Defaults
	// to 30 seconds.
	AbortGrace time.Duration
	// AnswerGrace is how long after a task's time-out the manager still waits for
	// the delegate's TIMEOUT answer. Defaults to 2 seconds.
	AnswerGrace time.Duration
	// ForgetLost is how long the manager remembers a lost delegate. Defaults to 1
	// hour.
	ForgetLost time.Duration
	// Retention is how long the manager remembers ended stages and single tasks.
	// Defaults to 1 hour.
	Retention time.Duration
	// MaxFinished is the largest number of them. Of the account that has most, the manager
	// forgets the one that ended first. So an account never displaces the stages of another
	// one that has fewer. Defaults to 10,000.
	MaxFinished int
	// MaxFinishedBytes bounds their total size in memory, in bytes, with their
	// answers, in the same way. The manager always remembers the newest one. Defaults to
	// 64 MiB.
	MaxFinishedBytes int
	// MaxAttempts is the largest number of delegates that get a task whose answers
	// are RETRY_ON_OTHER_DELEGATE. Defaults to 3.
	MaxAttempts int

	// PerpetualLease is how long a delegate keeps its perpetual tasks without contact. After
	// it the manager gives them to other delegates (docs/perpetual.md). Delegates renew
	// their leases about four times in it. Defaults to 30 seconds. Values below 1 second and
	// above 1 hour become these bounds.
	PerpetualLease time.Duration

	// MinDelegateVersion is the oldest version of delegates that may register, such as v1.2.3.
	// Versions of another form are accepted: those of development builds, and of foreign
	// delegates. Empty accepts all.
	MinDelegateVersion string

	// TaskTimeout is the time-out of inits, steps and single tasks that set none.
	// Defaults to 1 hour.
	TaskTimeout time.Duration
	// CleanupTimeout is the time-out of cleanups. Defaults to 10 minutes.
	CleanupTimeout time.Duration
	// QueueTimeout is how long a stage without queue_timeout_ms waits for a
	// delegate. Defaults to 8 hours.
	QueueTimeout time.Duration
	// MaxWait is the longest time that the manager holds a poll or a status call.
	// Defaults to 60 seconds, which is also the maximum.
	MaxWait time.Duration
	// MaxSync is the longest time that the manager holds a synchronous submission.
	// Defaults to 10 minutes.
	MaxSync time.Duration
	// MaxBody bounds the body of a request, in bytes. Defaults to [task.MaxBody].
	MaxBody int64

	// AccountBudget bounds the use of each account, TotalBudget the use of all accounts
	// together.
	AccountBudget, TotalBudget Budget

	// Logs returns the log service for a step whose payload names none. The key of
	// the step's log begins with prefix, which is the stage's id and a slash.
	// Characters of the id that not every log writer can send are replaced. The
	// token in the result may be limited to keys with that prefix, and to the time until
	// [Manager.StageEnd]. If Logs is nil or returns nil, the output stays with the
	// delegate. Logs must be safe for concurrent use.
	Logs func(account, stageID, prefix string) *stage.LogConfig
	// LogURLs are base URLs of further log services to which the manager may write why
	// a stage waits. The manager writes to the log of an init only in the log service
	// of Logs and in these; it refuses an init.log_config with another URL. It follows
	// no redirects. Delegates may write the logs of steps to any log service.
	LogURLs []string

	// Gap is the outage after which delegates get fresh deadlines for their
	// heartbeats and answers. An outage is a time when no manager ran or none
	// reached the store. Defaults to 10 seconds. A negative value disables this.
	Gap time.Duration

	// Store keeps the state. Package manager/sqlite has a store for one manager,
	// package manager/redis has one for any number of managers. Managers on one
	// store must have the same settings: the settings of the manager that started
	// last apply to all. New takes ownership of the store, also when it fails. Nil
	// keeps the state in memory.
	Store Store
	// StoreKeys encrypt the state in the store, because payloads and answers may
	// contain secrets (rule S5). Each key is at least 16 random bytes. Any one of
	// them decrypts the store. To replace a key, start a manager once with both the
	// new key and the old one. StoreKeys is required with a Store, unless
	// StoreUnsealed is true. StoreUnsealed stores the state without encryption.
	StoreKeys     [][]byte
	StoreUnsealed bool
	// CompactAfter is the number of bytes by which the store's log grows before the
	// manager saves the state and drops the log. Defaults to 16 MiB.
	CompactAfter int64

	// Clock replaces the wall clock, for tests and simulations. Nil is the wall
	// clock.
	Clock Clock
	// Logger logs when delegates register, leave or are lost, and when stages end.
	// The zero value logs nothing.
	Logger zerolog.Logger

	// TracerProvider receives the spans of stages and tasks. They join the trace of
	// the submission, from its traceparent header or its Go context. Tasks pass the
	// trace on to their delegates (rule L3). Nil records no spans and only passes
	// the trace on.
	TracerProvider trace.TracerProvider
}

// maxWait is the longest time that a poll may be held, whatever the configuration
// says. A client's time-out must distinguish a held poll from a dead server.
const maxWait = time.Minute

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.TaskTimeout, time.Hour},
		{&c.CleanupTimeout, 10 * time.Minute},
		{&c.QueueTimeout, 8 * time.Hour},
		{&c.MaxWait, maxWait},
		{&c.MaxSync, 10 * time.Minute},
		{&c.PerpetualLease, 30 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	c.MaxWait = min(c.MaxWait, maxWait)
	c.PerpetualLease = min(max(c.PerpetualLease, time.Second), time.Hour)
	c.Gap = max(cmp.Or(c.Gap, 10*time.Second), 0)
	if c.MaxBody <= 0 {
		c.MaxBody = task.MaxBody
	}
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
}

// Manager serves delegates and submitters. It is an [http.Handler]. All methods are
// safe for concurrent use.
type Manager struct {
	cfg       Config
	id        string // identifies this process among the managers of a store
	auth      *authenticator
	core      *core
	journal   *journal.Journal[*command]
	tracer    trace.Tracer
	queueLogs *queuelog.Writer
	budgets   *budgets
	large     chan struct{} // contains a token for each large body that is processed
	handler   http.Handler

	stop    context.CancelFunc // stops the loop and its commands
	closing <-chan struct{}    // is closed by Close
	stopped chan struct{}      // is closed when the loop has ended

	queueViews queueViews
	placesMu   sync.Mutex // guards places; is held while they are determined
	places     map[string]placesList

	mu     sync.Mutex // guards the fields below, which belong to this process alone
	counts map[string]*accountStats
	spans  map[string]trace.Span // of stages and single tasks, by their traceparent
}

// New returns a manager and starts its goroutine, which [Manager.Close] ends. It
// fails without accounts, if a secret is malformed, or if the store cannot be read.
func New(cfg Config) (*Manager, error) {
	m, err := open(&cfg)
	if err != nil {
		if m == nil && cfg.Store != nil { // otherwise the journal has closed the store
			err = errors.Join(err, cfg.Store.Close())
		}
		return nil, fmt.Errorf("manager: %w", err)
	}
	return m, nil
}

func open(cfg *Config) (*Manager, error) {
	cfg.setDefaults()
	if v := cfg.MinDelegateVersion; v != "" && !isVersion(v) {
		return nil, fmt.Errorf("MinDelegateVersion %.80q: it must be of the form v1.2.3", v)
	}
	auth, err := newAuthenticator(cfg.Accounts, cfg.Clock.Now)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Manager{
		cfg:     *cfg,
		id:      rand.Text(),
		auth:    auth,
		stop:    stop,
		closing: ctx.Done(),
		stopped: make(chan struct{}),
		counts:  map[string]*accountStats{},
		spans:   map[string]trace.Span{},
		tracer:  cfg.TracerProvider.Tracer(scope),
		core:    newCore(false),
		places:  map[string]placesList{},
		large:   make(chan struct{}, maxLarge),
	}
	m.budgets = newBudgets(m)
	opening, cancel := context.WithTimeout(ctx, openFor)
	defer cancel()
	if m.journal, err = journal.Open(opening, journal.Config[*command]{
		Log: cfg.Store, Keys: cfg.StoreKeys, Unsealed: cfg.StoreUnsealed, Rules: rules,
		CompactAfter: max(cfg.CompactAfter, 0),
		New:          func() journal.Machine[*command] { return newCore(true) },
		Now:          cfg.Clock.Now, Logger: cfg.Logger,
	}, journal.Machine[*command](m.core)); err != nil {
		stop()
		return m, err
	}
	// The first command also carries out what the commands of the journal have left, which may be lines of queued stages.
	m.queueLogs = queuelog.New(queuelog.Config{Ask: m.currentQueueLogState, Logger: cfg.Logger})
	if err := m.configure(ctx); err != nil {
		stop()
		m.queueLogs.Close()
		return m, errors.Join(err, m.journal.Close())
	}
	m.handler = httpserver.Guard(m.routes())
	if !m.shared() {
		m.writeAllQueueLogs()
	}
	go m.loop(ctx)
	return m, nil
}

// openFor is how long the manager may take to read the state from the store.
const openFor = 5 * time.Minute

// rules is the version of the rules by which the core executes the commands of a
// store.
const rules = 7

// configure sets this manager's settings for all managers of the store. With a
// read-only store, the settings in the store stay.
func (m *Manager) configure(ctx context.Context) error {
	set := m.cfg.settings()
	m.core.mu.Lock()
	set.Epoch = m.core.set.Epoch
	same := set == m.core.set
	m.core.mu.Unlock()
	if same && set.Epoch != "" {
		return nil
	}
	set.Epoch = cmp.Or(set.Epoch, rand.Text())
	if _, err := m.applyCommand(ctx, &command{Configure: &set}); err != nil && !errors.Is(err, journal.ErrReadOnly) {
		return err
	}
	return nil
}

// settings returns the settings that all managers of a store share.
func (c *Config) settings() settings {
	return settings{
		HeartbeatTimeout: c.HeartbeatTimeout, AcquireTimeout: c.AcquireTimeout,
		AbortGrace: c.AbortGrace, AnswerGrace: c.AnswerGrace, ForgetLost: c.ForgetLost,
		Retention: c.Retention, MaxFinished: c.MaxFinished,
		MaxFinishedBytes: c.MaxFinishedBytes, MaxAttempts: c.MaxAttempts, Gap: c.Gap,
		FairRetention: true, PerpetualLease: c.PerpetualLease,
	}
}

// ServeHTTP serves the delegate protocols and the API, as the package documentation
// describes them.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Close stops the manager and closes its store. It answers held calls at once.
// Time-outs have no effect any more. Call Close before http.Server.Shutdown, because
// Shutdown waits for held calls. Further calls do nothing.
func (m *Manager) Close() error {
	m.stop()
	<-m.stopped
	m.queueLogs.Close()
	return m.journal.Close()
}

// loop executes due actions until ctx ends.
func (m *Manager) loop(ctx context.Context) {
	defer close(m.stopped)
	for {
		soon := !m.tickQueue(ctx) || !m.fireDue(ctx) || !m.renewLeadership(ctx)
		due, stop := m.nextWakeup(soon)
		select {
		case <-due:
		case <-m.core.queue.Wake():
		case <-m.core.wake:
			m.runEffects()
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// tickQueue expires what is due in the queue. It reports false if the store failed.
func (m *Manager) tickQueue(ctx context.Context) bool {
	at, ok := m.nextDeadline()
	if !ok || at.After(m.journal.Now()) {
		return true
	}
	_, err := m.applyCommand(ctx, &command{Tick: &struct{}{}})
	return err == nil
}

// nextDeadline returns the time of the next tick.
func (m *Manager) nextDeadline() (time.Time, bool) {
	at, ok := m.core.queue.NextDeadline()
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if t, one := m.core.perpetual.NextDeadline(); one && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	return at, ok
}

// nextWakeup returns a channel that receives when the loop has to run again. If soon
// is true, because the last run failed, that is in a second. Managers on one store
// add a random delay, so that not all of them send the same command.
func (m *Manager) nextWakeup(soon bool) (<-chan time.Time, func()) {
	if soon {
		return m.after(time.Second)
	}
	at, ok := m.nextDeadline()
	if t, one := m.core.nextSchedule(); one && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	if t := m.nextRenewal(); m.shared() && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	if !ok {
		return nil, func() {}
	}
	wait := at.Sub(m.journal.Now()) // the clock can be set meanwhile
	if m.shared() {
		wait += mathrand.N(maxTurnDelay)
	}
	return m.after(wait)
}

const maxTurnDelay = 20 * time.Millisecond

// applyCommand executes a command and the effects that it has outside the state.
func (m *Manager) applyCommand(ctx context.Context, cmd *command) (result, error) {
	r, err := m.journal.Do(ctx, cmd)
	if err != nil {
		m.core.mu.Lock()
		m.core.unwaited = true
		m.core.mu.Unlock()
	}
	m.runEffects()
	switch {
	case errors.Is(err, journal.ErrClosed):
		return result{}, ErrClosed
	case err != nil:
		return result{}, err
	}
	out := r.(result) //nolint:forcetypeassert // Apply returns this type
	return out, out.err
}
