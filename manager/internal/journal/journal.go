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

// Errors of a [Journal], for [errors.Is].
var (
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("the journal is closed")
	// ErrUnavailable means that the log cannot be reached or did not answer. The
	// command may have been applied, or may be applied later, but at most once.
	ErrUnavailable = errors.New("the store does not answer")
	// ErrReadOnly means that the store accepts no changes. The message states the
	// reason.
	ErrReadOnly = errors.New("the store is read-only")
	// ErrTooLarge means that the command exceeds the limit of a log. It was not
	// applied.
	ErrTooLarge = errors.New("the command is too large")
)

// Machine is a state and its rules. C is the type of its commands. The journal never
// calls two methods at the same time. A machine that the program reads directly needs
// its own lock.
type Machine[C any] interface {
	// Apply applies a command at a time that is never before the time of an earlier
	// command. The new state and the result must depend only on the state, the command
	// and the time: not on a clock, on random numbers or on the order of a map. own
	// reports that the command comes from Do of this journal. An effect outside the
	// state, such as a log message, can then happen in one process only, and not again
	// when the log is read again. In rare cases own is false in all processes.
	Apply(at time.Time, command C, own bool) (result any)
	// Encode and Decode convert a command to and from its form in the log. A later
	// version must decode the commands of an earlier one. The result must depend only
	// on the command. Unlike the other methods, they may be called at any time.
	Encode(command C) ([]byte, error)
	Decode(b []byte) (C, error)
	// Save writes the state. Load replaces the state by the output of Save. After Load
	// the machine behaves like the saved one.
	Save(w io.Writer) error
	Load(r io.Reader) error
}

// Config configures a [Journal].
type Config[C any] struct {
	// Log stores the commands. Open takes ownership of it, even if Open fails. Without
	// a Log the state is only in memory, and of the other fields only Now is used.
	Log Log
	// New returns a machine without state, like the one that the caller passes to Open.
	// It is required with a Log. The journal uses such a machine to save the state, and
	// to read the log again after the log has lost its end.
	New func() Machine[C]
	// Keys are secrets of at least 16 random bytes. Each key opens the log; the journal
	// encrypts everything in it. Open adds keys that the log does not know yet. To
	// replace a key, open the log once with the new key and the old key.
	Keys [][]byte
	// Unsealed leaves the log unencrypted. It must have the same value as when the log
	// was created.
	Unsealed bool
	// Rules is the version of the rules of the machine. Each entry carries the version
	// of its writer. Open refuses a log with a higher version. Defaults to 0.
	Rules int
	// CompactAfter is the growth of the log, in bytes, after which the journal saves
	// the state and drops the log. The log also grows at least by the size of the last
	// saved state. Defaults to 16 MiB.
	CompactAfter int64
	// CompactEvery is the time after which the journal saves the state even if the log
	// has grown less, provided that the log and the saved state are larger than 1 MiB. A
	// store that was full for a short time thus gives its room back. Defaults to 10
	// minutes.
	CompactEvery time.Duration
	// MaxBatch bounds the commands in one entry, in bytes, except for a single larger
	// command. Defaults to 1 MiB.
	MaxBatch int
	// Logger logs failures of the log. The zero value logs nothing.
	Logger zerolog.Logger
	// Now is the clock of the process. It is also the clock of a log that has none.
	// Defaults to time.Now.
	Now func() time.Time
}

const (
	defaultCompactAfter = 16 << 20
	defaultCompactEvery = 10 * time.Minute
	defaultMaxBatch     = 1 << 20
	maxCommand          = 64 << 20
)

// Journal applies commands to a machine in the order of its log. It is safe for
// concurrent use.
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

	mu      sync.Mutex // held while a command is applied
	live    *replica[C]
	sent    map[uint64]*flight // batches on their way to the log, by counter
	moved   chan struct{}      // closed when live has moved; nil without waiters
	reloads int
	failed  error

	queueMu sync.Mutex
	pending []*call
	gone    int // number of abandoned calls in pending
	closed  bool
	wake    chan struct{}

	full    chan struct{} // signals that it is time to save the state
	saving  chan struct{} // contains a token unless the state is being saved
	doubt   chan struct{} // signals that the log may have lost its end
	clock   clock         // for a log without a clock
	offset  atomic.Int64  // difference of a shared log's clock from the clock of this process
	last    atomic.Int64  // time of the last entry
	trouble atomic.Pointer[error]
}

// Open returns a journal. It brings the machine to the state of the log. The machine
// must have no state, and belongs to the journal afterwards.
//
// Open fails with ErrKeys, ErrNewer or ErrDamaged if it cannot or must not read the
// log. It fails with ErrUnavailable if ctx ends first.
func Open[C any](ctx context.Context, cfg Config[C], machine Machine[C]) (*Journal[C], error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.CompactAfter = cmp.Or(cfg.CompactAfter, defaultCompactAfter)
	cfg.CompactEvery = cmp.Or(cfg.CompactEvery, defaultCompactEvery)
	cfg.MaxBatch = cmp.Or(cfg.MaxBatch, defaultMaxBatch)
	j := &Journal[C]{
		cfg: cfg, log: cfg.Log, live: newReplica(machine, cfg.Rules, nil, nil), origin: rand.Text(), sent: map[uint64]*flight{},
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1), saving: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
	}
	j.clock.process = cfg.Now
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
	j.live.aside = &asides{
		log: j.log, logger: j.cfg.Logger, added: func() { poke(j.full) }, // the next start need not find them again
		panicked: map[commandID]bool{}, known: map[commandID]bool{},
	}
	end, err := retry(ctx, func() (End, error) { return j.logEnd(ctx) })
	if err != nil {
		return fmt.Errorf("reading the end of the log: %w", err)
	}
	if err := j.live.restore(ctx, j.log, end.Seq, j.cfg.New, ignore); err != nil {
		return err
	}
	j.arrived()
	return nil
}

// Do puts a command into the log and applies it. It returns the result of Apply.
//
// If ctx ends or the log fails, Do fails with ErrUnavailable: the command may have been
// applied, or may be applied later, but at most once. Do waits for a log that does not
// answer, so ctx should have a deadline. With a log, Do fails with ErrSetAside if the
// machine panics. Without one it panics too, and the journal cannot be used any more.
func (j *Journal[C]) Do(ctx context.Context, command C) (any, error) {
	if j.log == nil {
		return j.doInMemory(command)
	}
	body, err := j.live.machine.Encode(command)
	if err != nil {
		return nil, fmt.Errorf("encoding the command: %w", err)
	}
	if len(body) > maxCommand {
		return nil, fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTooLarge, len(body), maxCommand)
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
	j.live.at = j.clock.now()
	unbroken := j.breakOnPanic()
	result := j.live.machine.Apply(j.live.at, command, true)
	unbroken()
	return result, nil
}

// breakOnPanic marks the journal as failed until the returned function is called. If
// Apply panics and the program recovers, no caller can use the incomplete state.
func (j *Journal[C]) breakOnPanic() func() {
	before := j.failed
	j.failed = fmt.Errorf("%w: the state is not valid, because applying a command panicked; restart the process", ErrUnavailable)
	return func() { j.failed = before }
}

// Now estimates the time that a new command would have.
func (j *Journal[C]) Now() time.Time {
	if j.log == nil || !j.log.Shared() {
		return j.clock.now()
	}
	now := j.cfg.Now().Add(time.Duration(j.offset.Load()))
	if last := j.last.Load(); now.UnixNano() < last {
		return time.Unix(0, last).UTC()
	}
	return now
}

// Sync returns when this process has applied all entries that were in the log at the
// time of the call. Without a log, or with a log that is not shared, there are none to
// wait for.
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

// Ping returns nil if the store answers and the journal can apply commands.
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

// Stats contains the sizes of the log.
type Stats struct {
	Position uint64   // number of entries since the log began
	Entries  int64    // number of entries since the saved state
	Bytes    int64    // size of these entries
	Snapshot Snapshot // the saved state; the zero value if there is none
	Pending  int      // number of commands that wait for the log
	SetAside int      // number of known commands that panicked and were left out
}

// Stats returns the sizes as this process knows them.
func (j *Journal[C]) Stats() Stats {
	j.mu.Lock()
	s := Stats{Position: j.live.pos.Seq, Entries: j.live.entries, Bytes: j.live.bytes, Snapshot: j.live.base}
	j.mu.Unlock()
	j.queueMu.Lock()
	defer j.queueMu.Unlock()
	s.Pending = len(j.pending) - j.gone
	s.SetAside = j.live.aside.count()
	return s
}

// Close ends the journal and closes the log. Commands that have not reached the log
// fail with ErrClosed.
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
	j.writing.Wait() // sent batches get their answers
	j.end()
	if j.log == nil {
		return nil
	}
	// Close of the log interrupts a read that waits for entries.
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
