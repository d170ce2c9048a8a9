package journal

import (
	"context"
	"errors"
	"time"
)

// What the methods of a [Log] fail with beside the errors of a [Journal].
var (
	// ErrRetry: the log did not answer, so that nobody knows whether it did what
	// it was asked for. The journal asks again.
	ErrRetry = errors.New("no answer from the store")
	// ErrOtherLog: where the log was there is none, or another one.
	ErrOtherLog = errors.New("the store holds another log than before, or none")
	// ErrMoved: there is a newer snapshot, and this one is no more.
	ErrMoved = errors.New("there is a newer snapshot")
	// ErrBusy: another process saves the state at this time.
	ErrBusy = errors.New("another process saves the state already")
)

// Position is a place in a log.
type Position struct {
	Seq uint64 // the first entry's is 1
	// Token tells apart what had the same Seq at different times, when a log can
	// lose its end and go on. It depends on all entries before.
	Token string
}

// Batch is what a journal asks a log to append. The log neither reads nor
// changes the body.
type Batch struct {
	Origin  string // of the journal; one that is opened again has a new one
	Counter uint64 // by which a log knows a batch that it has; the origin's next one has a higher one
	At      time.Time
	Rules   int
	Body    []byte
}

// Entry is a batch in the log.
type Entry struct {
	Batch
	Position
	Prev string // the token of the entry before
}

// Header is what a log begins with. ID is random and stays the same.
type Header struct {
	ID   string
	Body []byte
}

// Snapshot describes a saved state.
type Snapshot struct {
	ID string // empty when there is none
	Position
	At     time.Time // of the last entry that is in it
	Saved  time.Time // by the clock of who saved it
	Rules  int
	Size   int64
	Chunks int
}

// End is the end of a log. It remains when the entries before it were dropped.
type End struct {
	Position
	Log string    // the ID of its header, empty if there is none
	Now time.Time // by the log's clock, zero if it has none
}

// Log orders and keeps entries. Its methods are safe for concurrent use. They
// may fail with an error that wraps [ErrRetry], and are then called again.
type Log interface {
	// Shared says whether other processes append to it.
	Shared() bool
	// Header returns the header, the zero value when there is none yet.
	Header(context.Context) (Header, error)
	// SetHeader replaces a header by another one. It does nothing and returns
	// false when the header is not the old one.
	SetHeader(ctx context.Context, old, header Header) (bool, error)
	// Append puts a batch behind the last entry of the log with this ID. The entry's time is the log's, or
	// the batch's if the log has no clock, but not before that of the entry before.
	// A batch that is already there is not appended again: the entry is returned.
	// One whose counter is lower than that of another one of its origin is refused.
	// Any error but ErrRetry is final, and the batch is not in the log unless that
	// error says so.
	Append(ctx context.Context, log string, b Batch) (Entry, error)
	// Read returns some of the entries that follow, the first ones. When there are
	// none it waits for one; after a while it returns nothing. A log that is not
	// shared does not wait. The first entry is not the one that follows when that
	// one was dropped or lost.
	Read(ctx context.Context, after uint64) ([]Entry, error)
	End(context.Context) (End, error)

	// Snapshot describes the saved state.
	Snapshot(context.Context) (Snapshot, error)
	// Chunk reads a part of the saved state, the first one is 0.
	Chunk(ctx context.Context, id string, n int) ([]byte, error)
	// PutChunk keeps a part of a state that is being saved, one after the other.
	PutChunk(ctx context.Context, id string, n int, chunk []byte) error
	// Commit makes the chunks with this ID the saved state, in one step, and drops
	// the one before as well as the entries that it covers. A shared log drops those
	// only that the state before covered, for others may be a bit behind. It does
	// nothing when there is a saved state already that is as new, and fails with
	// ErrMoved when the log has lost what the state was made of.
	Commit(context.Context, Snapshot) error
	// Lead lets one process at a time save the state. It fails with ErrBusy for the
	// others. Release is called when it is saved, or was not.
	Lead(context.Context) (release func(), err error)

	// Ping asks for a sign of life.
	Ping(context.Context) error
	Close() error
}
