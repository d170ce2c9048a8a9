// Package livelog is what the log service and its stores of live streams have in common.
package livelog

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

// Line is a line as its writer sent it: one JSON object, without line breaks. Pos is
// the number that the writer gave it; [Streams.Read] sets it to the number in the
// stream.
type Line struct {
	Raw json.RawMessage
	Pos int64
}

// Batch is the content of one PUT.
type Batch struct {
	// Writer identifies the writer, to recognise repeated lines. Empty means that
	// lines of this writer are never recognised as repeated.
	Writer string
	// Next is the pos after the last line that was acknowledged to the writer. 0 or
	// less means unknown.
	Next int64
	// Lines are in the order of their pos if Writer is set.
	Lines []Line
	// MaxStream bounds the size of the stream including the batch, in bytes.
	MaxStream int64
}

// State describes a stream at one moment.
type State struct {
	// Open reports whether the stream accepts lines. Otherwise it is complete.
	Open bool
	// Run distinguishes the stream from earlier streams of the same log.
	Run int64
	// Lines is the number of lines, and Size the space that they need, in bytes.
	Lines, Size int64
	// Archived is the number of lines that the archive of the log covers. It is 0 if
	// this run has no archive, and [Uploaded] if the writer uploaded it.
	Archived int64
	// Touched is the time of the last change.
	Touched time.Time
}

// Usage is a number of logs and their size in bytes.
type Usage struct {
	Logs int
	Size int64
}

// Plus returns the sum of two amounts.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Logs + v.Logs, u.Size + v.Size}
}

// Uploaded is the State.Archived of a stream whose writer uploaded an archive.
const Uploaded = 1<<63 - 1

// Pending reports whether the stream is complete and its archive lacks lines.
func (s State) Pending() bool { return !s.Open && s.Lines > 0 && s.Archived < s.Lines }

// Streams stores the live streams of logs. Package logservice stores them in memory or
// in files, and package manager/redis in Redis. Every call is atomic, and durable as the
// implementation documents. All methods are safe for concurrent use.
type Streams interface {
	// Start opens the stream of the log. It changes nothing if the stream is open, or
	// if this writer has started or written to it: the call is then a repetition.
	// Otherwise it replaces a complete stream by an empty one with another run.
	Start(ctx context.Context, id ID, writer string) error

	// Append adds lines to the stream. It opens the stream if it does not exist or is
	// complete. It drops lines that the writer has sent before. It appends all other
	// lines or none; without other lines it changes nothing. It does not retain the
	// lines or their memory. It fails with a [BehindError] if the stream lacks lines
	// of the writer before Next, and with [ErrTooLong] if the stream would exceed
	// MaxStream or would have more than 1,000 writers.
	Append(ctx context.Context, id ID, b Batch) error

	// Finish completes the stream. With snapshot, the content of the stream replaces
	// an uploaded archive, unless the stream has no lines. It fails with [ErrUnknown]
	// if there is no stream.
	Finish(ctx context.Context, id ID, snapshot bool) error

	// SetArchived sets the number of lines that the archive covers. It does nothing
	// if the stream has another run, or does not exist.
	SetArchived(ctx context.Context, id ID, run, lines int64) error

	// State describes the stream. It fails with [ErrUnknown] if there is no stream.
	State(ctx context.Context, id ID) (State, error)

	// Read returns lines of a run, beginning with number from: at least one, and at
	// most about 256 KiB. It returns none at the end. The Pos of a returned line is its
	// number in the stream, from 0. It fails with [ErrUnknown] if the run is gone.
	Read(ctx context.Context, id ID, run, from int64) ([]Line, error)

	// Watch returns a channel that is closed when the stream next changes or appears.
	// The channel may also be closed without a change.
	Watch(id ID) <-chan struct{}

	// Remove deletes the stream. It does nothing if the stream has another run.
	Remove(ctx context.Context, id ID, run int64) error

	// All iterates over the streams of an account, in no order. An empty account means
	// all streams.
	All(ctx context.Context, account string) iter.Seq2[ID, State]

	// Usage returns the room that the streams of an account use, and that of all streams.
	Usage(account string) (own, all Usage)

	// Sync makes all acknowledged changes durable.
	Sync() error

	// Close wakes all watchers. Later calls fail with [ErrClosed].
	Close() error
}

// Shared is implemented by [Streams] that several servers may use at the same time,
// such as those of package manager/redis.
type Shared interface {
	Streams

	// Claim locks the archive of a log for the caller. The lock ends when the caller
	// calls release, or when it does not renew its lease in time. It fails with
	// [ErrClaimed] if another server has the lock. held ends with ctx and with the lock.
	Claim(ctx context.Context, id ID) (held context.Context, release func(), err error)

	// Spend records until the given time that a name was used. Spent reports whether
	// it was used.
	Spend(ctx context.Context, name string, until time.Time) error
	Spent(ctx context.Context, name string) (bool, error)
}

// Errors of [Streams]. All calls may fail with ErrUnavailable: the call may or may not
// have had its effect, and the caller may repeat it. Start and Append may fail with
// ErrFull.
var (
	ErrUnknown     = errors.New("no such log")
	ErrTooLong     = errors.New("the stream would be over the limit")
	ErrClosed      = errors.New("the log service is closed")
	ErrFull        = errors.New("there is no space for live logs")
	ErrUnavailable = errors.New("the store of live logs does not answer")
	ErrClaimed     = errors.New("another server archives the log at the moment")
)

// BehindError reports that the stream lacks lines that were acknowledged to a writer.
type BehindError struct {
	// Next is the pos after the last line that the stream has.
	Next int64
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the log service has lost lines: send them again from pos %d", e.Next)
}
