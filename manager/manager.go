package manager

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/queue"
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
	secrets map[string]token.Secret
	tokens  tokenCache
	queue   *queue.Queue
	tracer  trace.Tracer
	handler http.Handler

	closeOnce sync.Once
	closing   chan struct{} // closed by Close
	stopped   chan struct{} // closed when the loop has ended

	mu       sync.Mutex
	stages   map[key]*run
	order    uint64
	tasks    map[key]*single
	counts   map[string]*counts // by account
	notes    []note             // to be logged when mu is free
	deferred []func()           // to be called then
}

// key is an id within an account.
type key struct{ account, id string }

// New makes a manager and starts its one goroutine, which ends with
// [Manager.Close]. It fails when there is no account, or when a secret has no
// valid form.
func New(cfg Config) (*Manager, error) {
	cfg.setDefaults()
	if len(cfg.Accounts) == 0 {
		return nil, errors.New("manager: no account is configured; Config.Accounts needs an id and its secret")
	}
	m := &Manager{
		cfg:     cfg,
		secrets: make(map[string]token.Secret, len(cfg.Accounts)),
		closing: make(chan struct{}),
		stopped: make(chan struct{}),
		stages:  map[key]*run{},
		tasks:   map[key]*single{},
		counts:  map[string]*counts{},
		tracer:  cfg.TracerProvider.Tracer(scope),
		queue: queue.New(queue.Config{
			HeartbeatTimeout: cfg.HeartbeatTimeout, AcquireTimeout: cfg.AcquireTimeout,
			AbortGrace: cfg.AbortGrace, AnswerGrace: cfg.AnswerGrace, ForgetLost: cfg.ForgetLost,
			Retention: cfg.Retention, MaxFinished: cfg.MaxFinished,
			MaxFinishedBytes: cfg.MaxFinishedBytes, MaxAttempts: cfg.MaxAttempts,
			Now: cfg.Clock.Now,
		}),
	}
	for id, text := range cfg.Accounts {
		secret, err := token.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("manager: account %q: %w", id, err)
		}
		if id == "" {
			return nil, errors.New("manager: an account has no id")
		}
		m.secrets[id] = secret
	}
	m.handler = m.routes()
	go m.loop()
	return m, nil
}

// ServeHTTP serves the delegate protocols and the API of the package
// documentation.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Close ends the manager: held calls are answered at once, time-outs end nothing
// any more. Call it before the server's Shutdown, which waits for held calls.
// Closing twice does no harm. The error is always nil.
func (m *Manager) Close() error {
	m.closeOnce.Do(func() { close(m.closing) })
	<-m.stopped
	return nil
}

// loop does what is due.
func (m *Manager) loop() {
	defer close(m.stopped)
	for {
		m.queue.Tick(m.cfg.Clock.Now())
		m.settle()
		var due <-chan time.Time
		stop := func() {}
		if at, ok := m.queue.NextDeadline(); ok {
			due, stop = m.cfg.Clock.At(at)
		}
		select {
		case <-due:
		case <-m.queue.Wake():
		case <-m.closing:
			stop()
			return
		}
		stop()
	}
}

// settle makes the stages follow what has happened in the queue. Whoever changes
// the queue calls it afterwards.
func (m *Manager) settle() {
	notes, deferred := m.follow()
	for _, n := range notes {
		n.write(&m.cfg.Logger)
	}
	for _, f := range deferred {
		f()
	}
}

// follow applies all events and returns what is to be logged, and to be done.
func (m *Manager) follow() ([]note, []func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		events := m.queue.Events()
		if len(events) == 0 {
			break
		}
		for i := range events {
			m.apply(&events[i])
		}
	}
	notes, deferred := m.notes, m.deferred
	m.notes, m.deferred = nil, nil
	return notes, deferred
}

// note is a line for the log, kept until no lock is held.
type note struct {
	level                          zerolog.Level
	message                        string
	account, stage, delegate, what string
	span                           trace.Span // nil without one
}

func (n *note) write(l *zerolog.Logger) {
	e := l.WithLevel(n.level).Str("account_id", n.account)
	if n.stage != "" {
		e = e.Str("stage_id", n.stage)
	}
	if n.delegate != "" {
		e = e.Str("delegate_id", n.delegate)
	}
	if n.what != "" {
		e = e.Str("status", n.what)
	}
	if n.span != nil && n.span.SpanContext().IsValid() {
		e = e.Stringer("trace_id", n.span.SpanContext().TraceID()).Stringer("span_id", n.span.SpanContext().SpanID())
	}
	e.Msg(n.message)
}
