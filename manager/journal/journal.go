package journal

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
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
)

// Machine is a state and its rules. C is the type of its commands. The journal
// calls none of the methods while it calls another one; a machine that is read
// besides needs a lock of its own.
type Machine[C any] interface {
	// Apply carries out a command at a time, which is never before that of an
	// earlier one. The new state and the result depend on the state, the command
	// and the time alone: on no clock, no chance and no order of a map. Own says
	// that the command came through this journal's Do, so that what is no part of
	// the state, like a line in a log, is done by one process alone.
	Apply(at time.Time, command C, own bool) (result any)
	// Encode and Decode are a command's form in the log. A later version must
	// understand what an earlier one has written.
	Encode(command C) ([]byte, error)
	Decode(b []byte) (C, error)
	// Save writes the state, and Load replaces it by what Save has written. After
	// Load the machine behaves as the saved one.
	Save(w io.Writer) error
	Load(r io.Reader) error
}

// Config configures a [Journal].
type Config[C any] struct {
	// Now is the clock of a journal without a log. Defaults to time.Now.
	Now func() time.Time
}

// Journal carries out commands on a machine in the order of its log. It is safe
// for concurrent use.
type Journal[C any] struct {
	cfg     Config[C]
	machine Machine[C]

	mu     sync.Mutex
	last   time.Time
	closed bool
}

// Open makes a journal.
func Open[C any](_ context.Context, cfg Config[C], machine Machine[C]) (*Journal[C], error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Journal[C]{cfg: cfg, machine: machine}, nil
}

// Do puts a command into the log and carries it out. It returns what Apply
// returned.
func (j *Journal[C]) Do(_ context.Context, command C) (any, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, ErrClosed
	}
	if now := j.cfg.Now(); now.After(j.last) {
		j.last = now
	}
	return j.machine.Apply(j.last, command, true), nil
}

// Now is the time that a command which came now would have, as far as this
// process can tell.
func (j *Journal[C]) Now() time.Time { return j.cfg.Now() }

// Sync returns when all that was in the log when it was called is carried out
// here.
func (j *Journal[C]) Sync(context.Context) error { return nil }

// Close ends the journal.
func (j *Journal[C]) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	return nil
}
