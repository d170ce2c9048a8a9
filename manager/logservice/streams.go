package logservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// ID names a log.
type ID struct{ Account, Key string }

// Line is a line as it was sent: one JSON object, without a newline inside. Its
// pos is the writer's; see [Streams.Read] for what it is for a reader.
type Line struct {
	Raw json.RawMessage
	Pos int64
}

// Batch is what one PUT appends.
type Batch struct {
	// Writer recognises itself by this name. Empty means that it does not.
	Writer string
	// Next is the pos behind the last line that the writer believes to be there;
	// 0 or less means that it does not say.
	Next int64
	// Lines are in the order of their pos where the batch has a Writer.
	Lines []Line
	// MaxStream bounds the stream's size with the batch in it, in bytes.
	MaxStream int64
}

// State is what is known of a stream at one moment.
type State struct {
	// Open streams wait for lines; the others are complete.
	Open bool
	// Run tells a stream from earlier ones of the same log.
	Run int64
	// Lines is how many lines it has, and Size what it takes, in bytes.
	Lines, Size int64
	// Archived is how many of the lines the log's archive covers: 0 without one
	// of this run, [Uploaded] when it came from the writer.
	Archived int64
	// Touched is when the stream last changed.
	Touched time.Time
}

// Uploaded is the State.Archived of a stream whose writer sent an archive.
const Uploaded = 1<<63 - 1

// pending tells whether the archive lacks lines of a complete stream.
func (s State) pending() bool { return !s.Open && s.Lines > 0 && s.Archived < s.Lines }

// Streams keeps the live streams of logs. There is one implementation here, in
// memory or in files; logservicetest's suite says what others must do. Every
// call is atomic, and durable as the implementation documents it. All methods are
// safe for concurrent use.
type Streams interface {
	// Start opens the log's stream. One that is open already stays as it is, and
	// so does one that this writer has written to: the call is a repetition. A
	// stream that is complete begins anew otherwise, empty and as another run.
	Start(ctx context.Context, id ID, writer string) error

	// Append adds lines to the stream, which it opens when nobody did or when it
	// was complete. It takes all lines or none, but for those that the writer has
	// sent before; when nothing else is left, nothing changes. It keeps neither the
	// lines nor their memory. It fails with a
	// [BehindError] when the stream has fewer lines of the writer than Next says,
	// and with [ErrTooLong] when it would be over MaxStream.
	Append(ctx context.Context, id ID, b Batch) error

	// Finish completes the stream. With snapshot an archive that the writer sent
	// counts no longer, unless there is no line to replace it. It fails with
	// [ErrUnknown].
	Finish(ctx context.Context, id ID, snapshot bool) error

	// SetArchived notes how many lines the archive covers. It does nothing when
	// the stream's run is another one by now, or there is none.
	SetArchived(ctx context.Context, id ID, run, lines int64) error

	// State fails with [ErrUnknown] when there is no stream.
	State(ctx context.Context, id ID) (State, error)

	// Read returns lines of a run from number from on, at least one and about
	// 256 KiB at most, or none when there are no more. Pos is the line's number in
	// the stream, from 0. It fails with [ErrUnknown] when that run is gone.
	Read(ctx context.Context, id ID, run, from int64) ([]Line, error)

	// Watch returns a channel that is closed at the next change of the stream,
	// which its appearance is too, and maybe without one.
	Watch(id ID) <-chan struct{}

	// Remove forgets a run, and does nothing when it is another one by now.
	Remove(ctx context.Context, id ID, run int64) error

	// All are the streams, in no order.
	All(ctx context.Context) iter.Seq2[ID, State]

	// Usage is how many streams there are and what they take, in bytes.
	Usage() (streams int, size int64)

	// Sync makes durable what is not yet.
	Sync() error

	// Close wakes all watchers. Calls that come later fail with [ErrClosed].
	Close() error
}

// Shared is implemented by [Streams] that several servers use at the same time,
// as package redis does.
type Shared interface {
	Streams

	// Claim gives a log's archive to the caller alone, until release is called or
	// nothing was heard of the caller for some time. It fails with [ErrClaimed]. held ends
	// with ctx, and when the claim is lost.
	Claim(ctx context.Context, id ID) (held context.Context, release func(), err error)

	// Spend notes until some time that a name was used, and Spent tells whether
	// it was.
	Spend(ctx context.Context, name string, until time.Time) error
	Spent(ctx context.Context, name string) (bool, error)
}

// Errors of [Streams]. All calls may fail with ErrUnavailable; it is unknown then
// whether something has changed, and the same call may come again. Start and
// Append may fail with ErrFull.
var (
	ErrUnknown     = errors.New("no such log")
	ErrTooLong     = errors.New("the stream would be over the limit")
	ErrClosed      = errors.New("the log service is closed")
	ErrFull        = errors.New("there is no room for live logs")
	ErrUnavailable = errors.New("the store of live logs does not answer")
	ErrClaimed     = errors.New("another server works on the log's archive")
)

// BehindError says that lines which a writer believes to be there are not.
type BehindError struct {
	// Next is the pos behind the last line that is there.
	Next int64
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("lines were lost here: send them again from pos %d on", e.Next)
}
