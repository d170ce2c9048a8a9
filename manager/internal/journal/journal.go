package journal

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// What an operation can fail with, for [errors.Is].
var (
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
	// ErrUnavailable: the log cannot be reached, or did not answer. The command
	// may have been carried out or may be later, but not twice.
	ErrUnavailable = errors.New("the store does not answer")
	// ErrReadOnly: nothing can be changed; the message says why.
	ErrReadOnly = errors.New("the store is read-only")
	// ErrTooLarge: the command is larger than a log takes. It was not carried out.
	ErrTooLarge = errors.New("the command is too large")
)

// Machine is a state and its rules. C is the type of its commands. The journal
// calls none of the methods while it calls another one; a machine that is read
// besides needs a lock of its own.
type Machine[C any] interface {
	// Apply carries out a command at a time, which is never before that of an
	// earlier one. The new state and the result depend on the state, the command
	// and the time alone: on no clock, no chance and no order of a map. Own says
	// that the command comes from this journal's Do, so that what is no part of the
	// state, like a line in a log, is done by one process alone and not again when
	// the log is read again. In rare cases no process is told so.
	Apply(at time.Time, command C, own bool) (result any)
	// Encode and Decode are a command's form in the log. A later version must
	// understand what an earlier one has written. They depend on the command alone
	// and, unlike the other methods, may be called at any time.
	Encode(command C) ([]byte, error)
	Decode(b []byte) (C, error)
	// Save writes the state, and Load replaces it by what Save has written. After
	// Load the machine behaves as the saved one.
	Save(w io.Writer) error
	Load(r io.Reader) error
}

// Config configures a [Journal].
type Config[C any] struct {
	// Log keeps the commands. The journal owns it from Open on, also when Open
	// fails. Without one the state is in memory alone, and of the rest only Now
	// matters.
	Log Log
	// New makes a machine without state, such as the one given to Open. Required
	// with a Log: another machine follows the log when the state is saved, and when
	// the log has lost its end.
	New func() Machine[C]
	// Keys are secrets of 16 random bytes or more, with any one of which the log
	// opens: all that is kept in it is encrypted. A key that the log does not know
	// yet is added. To replace a key give the new one and the old one once.
	Keys [][]byte
	// Unsealed keeps the log readable for whoever can read the store. It must be
	// the same as when the log was made.
	Unsealed bool
	// Rules is the version of the machine's rules. Each entry carries the one that
	// it was written by, and a log with a higher one is refused. Defaults to 0.
	Rules int
	// CompactAfter is how many bytes the log grows before the state is saved and the
	// log dropped, and at least by the size of the last saved state. Defaults to
	// 16 MiB.
	CompactAfter int64
	// MaxBatch is how many bytes of commands are put into one entry, unless a single
	// command is larger. Defaults to 1 MiB.
	MaxBatch int
	// Logger tells of trouble with the log. Defaults to nothing.
	Logger zerolog.Logger
	// Now is the process's clock. Of a log that has no clock of its own it is the
	// clock. Defaults to time.Now.
	Now func() time.Time
}

const (
	defaultCompactAfter = 16 << 20
	defaultMaxBatch     = 1 << 20
	maxCommand          = 64 << 20
)

// Journal carries out commands on a machine in the order of its log. It is safe
// for concurrent use.
type Journal[C any] struct {
	cfg    Config[C]
	log    Log
	seal   *sealer
	origin string

	stopping context.Context //nolint:containedctx // until nothing new is sent
	stop     context.CancelFunc
	ctx      context.Context //nolint:containedctx // the journal's life
	end      context.CancelFunc
	writing  sync.WaitGroup
	running  sync.WaitGroup

	mu      sync.Mutex // held while a command is carried out
	live    *replica[C]
	sent    map[uint64]*flight // by counter, what is on its way to the log
	moved   chan struct{}      // closed when live has moved, nil when nobody waits
	reloads int
	failed  error

	queueMu sync.Mutex
	pending []*call
	gone    int // of the pending
	closed  bool
	wake    chan struct{}

	full    chan struct{} // it is time to save the state
	saving  chan struct{} // has a token while nobody does
	doubt   chan struct{} // the log may have lost its end
	offset  atomic.Int64  // of the log's clock, from this process's one
	last    atomic.Int64  // the last entry's time
	trouble atomic.Pointer[error]
}

// Open makes a journal, and brings the machine to the state that the log has.
// The machine is without state, and is the journal's from then on.
//
// It fails with ErrKeys, ErrNewer or ErrDamaged when it cannot or should not read
// the log, and with ErrUnavailable when ctx ends.
func Open[C any](ctx context.Context, cfg Config[C], machine Machine[C]) (*Journal[C], error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.CompactAfter = cmp.Or(cfg.CompactAfter, defaultCompactAfter)
	cfg.MaxBatch = cmp.Or(cfg.MaxBatch, defaultMaxBatch)
	j := &Journal[C]{
		cfg: cfg, log: cfg.Log, live: newReplica(machine, cfg.Rules, nil), origin: rand.Text(), sent: map[uint64]*flight{},
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), saving: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
	}
	j.saving <- struct{}{}
	j.ctx, j.end = context.WithCancel(context.WithoutCancel(ctx))
	j.stopping, j.stop = context.WithCancel(j.ctx)
	if j.log == nil {
		return j, nil
	}
	if err := j.open(ctx); err != nil {
		j.end()
		return nil, errors.Join(fmt.Errorf("opening the journal: %w", err), j.log.Close())
	}
	j.writing.Go(j.write)
	j.running.Go(j.compactAtTimes)
	if j.log.Shared() {
		j.running.Go(j.follow)
	}
	return j, nil
}

func (j *Journal[C]) open(ctx context.Context) error {
	if j.cfg.New == nil {
		return errors.New("Config.New is missing: with a log it is required")
	}
	var err error
	if j.seal, err = openHeader(ctx, j.log, j.cfg.Keys, j.cfg.Unsealed); err != nil {
		return err
	}
	j.live.seal = j.seal
	end, err := retry(ctx, func() (End, error) { return j.logEnd(ctx) })
	if err != nil {
		return fmt.Errorf("looking for the log's end: %w", err)
	}
	if err := j.live.restore(ctx, j.log, end.Seq, j.cfg.New, ignore); err != nil {
		return err
	}
	j.arrived()
	return nil
}

// Do puts a command into the log and carries it out. It returns what Apply
// returned.
//
// When ctx ends, or the log fails, the error is ErrUnavailable: the command may
// have been carried out, or may be later, but not twice. It waits for a log that
// does not answer, so ctx should have an end.
func (j *Journal[C]) Do(ctx context.Context, command C) (any, error) {
	if j.log == nil {
		return j.doInMemory(command)
	}
	body, err := j.live.machine.Encode(command)
	if err != nil {
		return nil, fmt.Errorf("encoding the command: %w", err)
	}
	if len(body) > maxCommand {
		return nil, fmt.Errorf("%w: it has %d bytes, %d are possible", ErrTooLarge, len(body), maxCommand)
	}
	c := &call{body: body, done: make(chan answer, 1)}
	if err := j.enqueue(c); err != nil {
		return nil, err
	}
	select {
	case a := <-c.done:
		return a.result, a.err
	case <-ctx.Done():
		j.withdraw(c)
		select {
		case a := <-c.done:
			return a.result, a.err
		default:
			return nil, unavailable(ctx, j.whatTroubles())
		}
	}
}

func (j *Journal[C]) doInMemory(command C) (any, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.isClosed() {
		return nil, ErrClosed
	}
	if j.failed != nil {
		return nil, j.failed
	}
	if now := j.cfg.Now(); now.After(j.live.at) {
		j.live.at = now
	}
	unbroken := j.breakOnPanic()
	result := j.live.machine.Apply(j.live.at, command, true)
	unbroken()
	return result, nil
}

// breakOnPanic lets nobody go on with a state that Apply left in the middle of
// something, if anybody should recover from that.
func (j *Journal[C]) breakOnPanic() func() {
	before := j.failed
	j.failed = fmt.Errorf("%w: the state is broken: carrying out a command panicked; restart the process", ErrUnavailable)
	return func() { j.failed = before }
}

// Now is the time that a command which came now would have, as far as this
// process can tell.
func (j *Journal[C]) Now() time.Time {
	now := j.cfg.Now()
	if j.log == nil {
		return now
	}
	now = now.Add(time.Duration(j.offset.Load()))
	if last := j.last.Load(); now.UnixNano() < last {
		return time.Unix(0, last).UTC()
	}
	return now
}

// Sync returns when all that was in the log when it was called is carried out
// here. Without a log, or with one that no other process writes to, it has
// nothing to do.
func (j *Journal[C]) Sync(ctx context.Context) error {
	if j.isClosed() {
		return ErrClosed
	}
	if j.log == nil || !j.log.Shared() {
		return j.err()
	}
	for {
		reloads := j.reloadCount()
		end, err := retry(ctx, func() (End, error) { return j.logEnd(ctx) })
		if err != nil {
			return asUnavailable(err)
		}
		if done, err := j.await(ctx, end.Seq, reloads); done || err != nil {
			return err
		}
	}
}

// Ping returns nil when the store answers and nothing else keeps commands from
// being carried out.
func (j *Journal[C]) Ping(ctx context.Context) error {
	if j.isClosed() {
		return ErrClosed
	}
	if err := j.err(); err != nil || j.log == nil {
		return err
	}
	if err := j.log.Ping(ctx); err != nil {
		return asUnavailable(err)
	}
	return nil
}

// Stats tells how large the log is.
type Stats struct {
	Position uint64   // the number of entries that were ever carried out
	Entries  int64    // since the saved state
	Bytes    int64    // of these entries
	Snapshot Snapshot // the saved state, the zero value if there is none
	Pending  int      // commands that wait for the log
}

// Stats returns the sizes as this process knows them.
func (j *Journal[C]) Stats() Stats {
	j.mu.Lock()
	s := Stats{Position: j.live.pos.Seq, Entries: j.live.entries, Bytes: j.live.bytes, Snapshot: j.live.base}
	j.mu.Unlock()
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	s.Pending = len(j.pending) - j.gone
	return s
}

// Close ends the journal and closes the log. Commands that did not get to the
// log fail with ErrClosed.
func (j *Journal[C]) Close() error {
	j.queueMu.Lock()
	if j.closed {
		j.queueMu.Unlock()
		j.running.Wait()
		return nil
	}
	j.closed = true
	pending := j.pending
	j.pending = nil
	j.queueMu.Unlock()
	fail(pending, ErrClosed)
	j.stop()
	j.writing.Wait() // what was sent gets its answer
	j.end()
	if j.log == nil {
		return nil
	}
	// A log that waits for entries ends that when it is closed.
	err := j.log.Close()
	j.running.Wait()
	return err
}

func (j *Journal[C]) isClosed() bool {
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	return j.closed
}

func (j *Journal[C]) err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}
