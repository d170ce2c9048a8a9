package journal

import (
	"context"
	"errors"
	"time"
)

// Errors of the methods of a [Log], in addition to those of a [Journal].
var (
	// ErrRetry means that the log did not answer. The operation may or may not have
	// happened. The journal repeats it.
	ErrRetry = errors.New("no answer from the store")
	// ErrOtherLog means that the store holds another log, or none.
	ErrOtherLog = errors.New("the store holds another log than before, or none")
	// ErrMoved means that a newer snapshot has replaced this one.
	ErrMoved = errors.New("there is a newer snapshot")
	// ErrBusy means that another process is saving the state.
	ErrBusy = errors.New("another process saves the state already")
)

// Position is a position in a log.
type Position struct {
	Seq uint64 // the first entry has 1
	// Token distinguishes entries that had the same Seq at different times, for logs
	// that can lose their end and continue. It depends on all previous entries.
	Token string
}

// Batch is a batch of commands that a journal appends. The log neither reads nor
// changes the body.
type Batch struct {
	Origin  string // of the journal; changes each time the journal is opened
	Counter uint64 // identifies the batch; increases with each batch of the origin
	At      time.Time
	Rules   int
	Body    []byte
}

// Entry is a batch in the log.
type Entry struct {
	Batch
	Position
	Prev string // token of the previous entry
}

// Header is the first record of a log. ID is random and never changes.
type Header struct {
	ID   string
	Body []byte
}

// Snapshot describes a saved state.
type Snapshot struct {
	ID string // empty if there is no saved state
	Position
	At     time.Time // time of the last entry that it covers
	Saved  time.Time // by the clock of the process that saved it
	Rules  int
	Size   int64
	Chunks int
}

// End is the end of a log. It remains when the previous entries are dropped.
type End struct {
	Position
	Log string    // ID of the header, empty without a header
	Now time.Time // by the clock of the log, zero if it has none
}

// Log orders and stores entries. Its methods are safe for concurrent use. If a method
// fails with an error that wraps [ErrRetry], the journal calls it again.
type Log interface {
	// Shared reports whether other processes append to the log.
	Shared() bool
	// Header returns the header, or the zero value if there is none yet.
	Header(context.Context) (Header, error)
	// SetHeader replaces the old header by another one. If the current header differs
	// from old, it does nothing and returns false.
	SetHeader(ctx context.Context, old, header Header) (bool, error)
	// Append adds a batch after the last entry of the log with this ID. The time of the
	// entry is the time of the log, or of the batch if the log has no clock, but never
	// before the time of the previous entry. If the log already has the batch, Append
	// returns its entry. It refuses a batch whose counter is lower than another one of
	// its origin. Every error except ErrRetry is final: the batch is not in the log,
	// unless the error states otherwise.
	Append(ctx context.Context, log string, b Batch) (Entry, error)
	// Read returns some entries after a position, beginning with the next one. If there
	// are none, it waits for one for a limited time, and may return none. A log that is
	// not shared does not wait. If the next entry was dropped or lost, the first
	// returned entry is a later one.
	Read(ctx context.Context, after uint64) ([]Entry, error)
	End(context.Context) (End, error)

	// Snapshot describes the saved state.
	Snapshot(context.Context) (Snapshot, error)
	// Chunk reads a part of the saved state. The first part is 0.
	Chunk(ctx context.Context, id string, n int) ([]byte, error)
	// PutChunk stores the next part of a state that is being saved.
	PutChunk(ctx context.Context, id string, n int, chunk []byte) error
	// Commit makes the chunks with this ID the saved state, atomically. It drops the
	// previous state and the entries that the new one covers. A shared log drops only
	// the entries that the previous state covered, because other processes may be
	// slightly behind. Commit does nothing if the saved state is equally new. It fails
	// with ErrMoved if the log has lost entries that the state contains.
	Commit(context.Context, Snapshot) error
	// Lead allows one process at a time to save the state. It fails with ErrBusy for
	// the others. The caller must call release afterwards.
	Lead(context.Context) (release func(), err error)

	// Ping checks that the store answers.
	Ping(context.Context) error
	Close() error
}
