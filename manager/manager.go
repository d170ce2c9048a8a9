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

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// What a call can fail with, for [errors.Is].
var (
	// ErrInvalid: the request makes no sense; the message says what to do.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: there is no such stage or task, or it is forgotten.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the id belongs to something else.
	ErrConflict = errors.New("the id is taken")
	// ErrClosed: the manager was closed while the call waited.
	ErrClosed = errors.New("the manager is closed")
)

// Store keeps the manager's state: packages manager/sqlite and manager/redis open one.
type Store = journal.Log

// Config configures a [Manager]. Only Accounts is required.
type Config struct {
	// Accounts are the account ids and their secrets: 32 hexadecimal characters,
	// or the base64 of those (PROTOCOL 1).
	Accounts map[string]string

	// HeartbeatTimeout is how long a delegate may be silent before it is lost and
	// its stages fail. Defaults to 60 seconds.
	HeartbeatTimeout time.Duration
	// AcquireTimeout is how long a delegate may leave what it was offered before
	// that goes to another one. Defaults to 30 seconds.
	AcquireTimeout time.Duration
	// AbortGrace is how long the manager waits for the answer of an aborted task
	// before it goes on to the cleanup. Defaults to 30 seconds.
	AbortGrace time.Duration
	// AnswerGrace is how long after a task's time-out the manager still waits for
	// the delegate's own TIMEOUT answer. Defaults to 2 seconds.
	AnswerGrace time.Duration
	// ForgetLost is how long a lost delegate is remembered. Defaults to 1 hour.
	ForgetLost time.Duration
	// Retention is how long ended stages and tasks are remembered. Defaults to
	// 1 hour.
	Retention time.Duration
	// MaxFinished bounds how many ended stages and single tasks are remembered.
	// Defaults to 10,000.
	MaxFinished int
	// MaxFinishedBytes bounds what the answers of those take, in bytes; the newest
	// is always remembered. Defaults to 256 MiB.
	MaxFinishedBytes int
	// MaxAttempts bounds how many delegates are asked to do what others answered
	// with RETRY_ON_OTHER_DELEGATE. Defaults to 3.
	MaxAttempts int

	// TaskTimeout is the time-out of inits, steps and single tasks that name
	// none. Defaults to 1 hour.
	TaskTimeout time.Duration
	// CleanupTimeout is the time-out of cleanups. Defaults to 10 minutes.
	CleanupTimeout time.Duration
	// QueueTimeout is how long a stage that names no queue_timeout_ms waits for a
	// delegate. Defaults to 8 hours.
	QueueTimeout time.Duration
	// MaxWait caps the wait of polls and of status calls. Defaults to 60 seconds,
	// which is also the most.
	MaxWait time.Duration
	// MaxSync caps how long a synchronous submission is held. Defaults to
	// 10 minutes.
	MaxSync time.Duration
	// MaxBody bounds a request's body in bytes. Defaults to [task.MaxBody].
	MaxBody int64

	// Logs says where the output of a step goes that names no log service itself.
	// The key of its log begins with prefix: the stage's id, changed where it holds
	// what not every writer can send, and a slash. A token may be limited to it.
	// Nil, as a function or an answer, leaves such output with the delegate. It
	// must be safe for concurrent use.
	Logs func(account, prefix string) *stage.LogConfig

	// Gap is how long no manager was there, or could reach the store, when delegates
	// get a fresh time to send heartbeats and answers in, as nobody could hear them.
	// Defaults to 10 seconds; below zero is never.
	Gap time.Duration

	// Store keeps the state: package journal/sqlite has one for a single manager,
	// journal/redis one for any number of managers, which then must all have the
	// same settings: those of the last one to start hold for all. The manager owns
	// it from [New] on, also when New fails. Nil keeps the state in memory.
	Store Store
	// StoreKeys are secrets of 16 random bytes or more: what is kept in the store is
	// encrypted, since payloads and answers may hold secrets (SPEC S5), and any one
	// of them opens it. To replace one, give the new one besides, once. Required
	// with a Store, unless StoreUnsealed says that nothing is to be encrypted.
	StoreKeys     [][]byte
	StoreUnsealed bool
	// CompactAfter is how many bytes the store's log grows before the state is saved
	// and the log dropped. Defaults to 16 MiB.
	CompactAfter int64

	// Clock defaults to the wall clock.
	Clock Clock
	// Logger tells of delegates that come and go and of stages that end. The zero
	// value is silent.
	Logger zerolog.Logger

	// TracerProvider takes the spans of stages and tasks, which join the trace that
	// a submission's header traceparent, or in Go its context, names; tasks carry
	// it on to their delegates (SPEC L3). Nil records nothing and carries on what
	// the submission says.
	TracerProvider trace.TracerProvider
}

// maxWait is the longest that a poll may be held, whatever is configured: a
// client's own time-out must be able to tell a held poll from a dead server.
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
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	c.MaxWait = min(c.MaxWait, maxWait)
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

// Manager is the server. It is an [http.Handler] and safe for concurrent use.
type Manager struct {
	cfg     Config
	id      string // of this process
	secrets map[string]token.Secret
	tokens  tokenCache
	core    *core
	journal *journal.Journal[*command]
	tracer  trace.Tracer
	lines   *queuelog.Writer
	handler http.Handler

	stop    context.CancelFunc // ends the loop and its commands
	closing <-chan struct{}    // closed by Close
	stopped chan struct{}      // closed when the loop has ended

	mu     sync.Mutex // guards what this process alone has
	counts map[string]*counts
	spans  map[string]trace.Span // of stages and single tasks, by their traceparent
}

// New makes a manager and starts its one goroutine, which ends with
// [Manager.Close]. It fails when there is no account, when a secret has no valid
// form, and when the store cannot be read.
func New(cfg Config) (*Manager, error) {
	m, err := open(&cfg)
	if err != nil {
		if m == nil && cfg.Store != nil { // otherwise the journal has closed it
			err = errors.Join(err, cfg.Store.Close())
		}
		return nil, fmt.Errorf("manager: %w", err)
	}
	return m, nil
}

func open(cfg *Config) (*Manager, error) {
	cfg.setDefaults()
	secrets, err := parseSecrets(cfg.Accounts)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Manager{
		cfg:     *cfg,
		id:      rand.Text(),
		secrets: secrets,
		stop:    stop,
		closing: ctx.Done(),
		stopped: make(chan struct{}),
		counts:  map[string]*counts{},
		spans:   map[string]trace.Span{},
		tracer:  cfg.TracerProvider.Tracer(scope),
		core:    newCore(false),
	}
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
	if err := m.configure(ctx); err != nil {
		stop()
		return m, errors.Join(err, m.journal.Close())
	}
	m.handler = m.routes()
	m.lines = queuelog.New(queuelog.Config{Ask: m.ask, Logger: cfg.Logger})
	if !m.shared() {
		m.tellAll()
	}
	go m.loop(ctx)
	return m, nil
}

// openFor is how long a store may take until its state is there.
const openFor = 5 * time.Minute

// rules is the version of the core's rules: of what the commands in a store do.
const rules = 1

func parseSecrets(accounts map[string]string) (map[string]token.Secret, error) {
	if len(accounts) == 0 {
		return nil, errors.New("no account is configured; Config.Accounts needs an id and its secret")
	}
	secrets := make(map[string]token.Secret, len(accounts))
	for id, text := range accounts {
		secret, err := token.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("account %q: %w", id, err)
		}
		if id == "" {
			return nil, errors.New("an account has no id")
		}
		secrets[id] = secret
	}
	return secrets, nil
}

// configure makes this manager's settings those of all. A store that can only be
// read keeps the ones that it has.
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
	if _, err := m.do(ctx, &command{Configure: &set}); err != nil && !errors.Is(err, journal.ErrReadOnly) {
		return err
	}
	return nil
}

// settings are those that all managers share.
func (c *Config) settings() settings {
	return settings{
		HeartbeatTimeout: c.HeartbeatTimeout, AcquireTimeout: c.AcquireTimeout,
		AbortGrace: c.AbortGrace, AnswerGrace: c.AnswerGrace, ForgetLost: c.ForgetLost,
		Retention: c.Retention, MaxFinished: c.MaxFinished,
		MaxFinishedBytes: c.MaxFinishedBytes, MaxAttempts: c.MaxAttempts, Gap: c.Gap,
	}
}

// ServeHTTP serves the delegate protocols and the API of the package
// documentation.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Close ends the manager: held calls are answered at once, time-outs end nothing
// any more. Call it before the server's Shutdown, which waits for held calls.
// Closing twice does no harm.
func (m *Manager) Close() error {
	m.stop()
	<-m.stopped
	m.lines.Close()
	return m.journal.Close()
}

// loop does what is due.
func (m *Manager) loop(ctx context.Context) {
	defer close(m.stopped)
	for {
		soon := !m.tick(ctx) || !m.fireDue(ctx) || !m.lead(ctx)
		due, stop := m.due(soon)
		select {
		case <-due:
		case <-m.core.queue.Wake():
		case <-m.core.woken:
			m.settle()
		case <-ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// tick does what is due in the queue. It is false when the store did not let it.
func (m *Manager) tick(ctx context.Context) bool {
	at, ok := m.core.queue.NextDeadline()
	if !ok || at.After(m.journal.Now()) {
		return true
	}
	_, err := m.do(ctx, &command{Tick: &struct{}{}})
	return err == nil
}

// due is when there is something to do; soon, when it could not be done. Managers
// on one store take turns by chance, so that they do not all do the same.
func (m *Manager) due(soon bool) (<-chan time.Time, func()) {
	if soon {
		return m.after(time.Second)
	}
	at, ok := m.core.queue.NextDeadline()
	if t, one := m.core.nextSchedule(); one && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	if t := m.nextLead(); m.shared() && (!ok || t.Before(at)) {
		at, ok = t, true
	}
	if !ok {
		return nil, func() {}
	}
	if !m.shared() {
		return m.cfg.Clock.At(at)
	}
	return m.after(at.Sub(m.journal.Now()) + mathrand.N(turns))
}

const turns = 20 * time.Millisecond

// do has a command carried out, with what it leads to.
func (m *Manager) do(ctx context.Context, cmd *command) (result, error) {
	r, err := m.journal.Do(ctx, cmd)
	if err != nil {
		m.core.mu.Lock()
		m.core.loose = true
		m.core.mu.Unlock()
	}
	m.settle()
	switch {
	case errors.Is(err, journal.ErrClosed):
		return result{}, ErrClosed
	case err != nil:
		return result{}, err
	}
	out := r.(result) //nolint:forcetypeassert // it is what Apply returns
	return out, out.err
}
