package logger

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TaskLog receives the masked output of a step or of a task. Write is called from one
// goroutine at a time. A [Stream] is a TaskLog.
type TaskLog interface {
	io.Writer
	// Close is called once, after the last Write. It returns an error if output is
	// lost.
	Close(ctx context.Context) error
}

var _ TaskLog = (*Stream)(nil)

// StreamConfig configures a [Stream] (docs/protocol.md 4). URL is required. Log
// services require Account and Key.
type StreamConfig struct {
	// URL is the base URL of the log service. It may have a path.
	URL string
	// Token authenticates requests to the log service. It is not sent to an upload
	// link.
	Token string
	// Account is the owner of the log and Key its name. Both may be any text.
	Account string
	Key     string
	// Writer is the id of the writer of the live stream, any text. A process that
	// sends a log again from its first line must use the previous value: the log
	// service then repeats no lines. Empty means a random value.
	Writer string

	// IndirectUpload archives the log through the service (POST /blob) instead
	// of an upload link.
	IndirectUpload bool
	// SkipOpeningStream reports that another process opens the stream. The service
	// then archives the content of the stream, and nothing is uploaded.
	SkipOpeningStream bool
	// SkipClosingStream reports that another process closes the stream and archives
	// it.
	SkipClosingStream bool
	// TrimNewLineSuffix removes the newline from every line.
	TrimNewLineSuffix bool

	// HTTPClient makes the requests. The stream follows no redirects, because they
	// would send the token to another host. Nil means a new client that uses
	// HTTP_PROXY. Streams with the same client share its connections.
	HTTPClient *http.Client

	// MaxLine is the length in bytes at which a line is split. Zero and values above
	// 64 KiB mean 64 KiB.
	MaxLine int
	// FlushInterval is the time for which lines are collected. Zero means 50 ms.
	FlushInterval time.Duration
	// RequestTimeout limits one live request. An upload may take longer. It is
	// retried if it makes no progress for three times as long. Zero means 10 s.
	RequestTimeout time.Duration
	// CloseTimeout limits Close, in addition to its context. Each MiB of log adds one
	// second. Zero means 2 min, which covers a short outage of the log service.
	CloseTimeout time.Duration

	// MaxMemory is the number of bytes of encoded log in memory. Older lines go to
	// temporary files. Zero means 1 MiB.
	MaxMemory int
	// MaxSpool limits memory and files together, in bytes. Zero means 4 GiB. If the
	// limit is reached or the disk is full, the spool removes lines that the log
	// service has. The service then archives its stream instead of an upload. If that
	// is not enough, Write waits, see MaxWait.
	MaxSpool int64
	// MaxWait is the time for which Write waits for space while the log service
	// accepts nothing. After that, lines are lost until the service accepts lines
	// again. The error of Close counts them. Zero means 2 s.
	MaxWait time.Duration
	// TempDir is the directory of the temporary files. Empty means os.TempDir().
	TempDir string
}

// LossError is the error of [Stream.Close] if a part of the log reached neither the
// archive nor the live stream (rule L2).
type LossError struct {
	// Lines is the number of lost lines, and Bytes their size as JSON.
	Lines, Bytes int64
	// Err is the reason.
	Err error
}

// Error returns the size of the loss and the reason.
func (e *LossError) Error() string {
	return fmt.Sprintf("%d lines (%d bytes) of log lost: %v", e.Lines, e.Bytes, e.Err)
}

// Unwrap returns the reason.
func (e *LossError) Unwrap() error { return e.Err }

// Stream is an io.Writer that sends one log to a log service (rule L2). Make one
// with [OpenStream]. It is safe for concurrent use, and must be closed.
//
// The output must be masked before. Write splits it into lines. Bytes that are not
// UTF-8 arrive as U+FFFD, because lines travel as JSON.
//
// A slow or failing log service does not fail the writer. The stream stores lines
// in memory and then in temporary files, and sends them in order until they arrive.
// Write waits only if that space is full, and for a limited time. If the system
// allows it, the files have no names, so that a crash leaves none. A log service
// with the header Dlite-Log-Next that has lost lines gets them again.
type Stream struct {
	cfg   StreamConfig
	api   *service
	spool *spool

	mu       sync.Mutex // guards the fields down to gaveUp; held while Write waits for space
	splitter lineSplitter
	times    timeFormatter
	closed   bool
	gaveUp   <-chan struct{} // the progress for which a wait has timed out
	noWait   chan struct{}   // closed when Close begins: Write no longer waits for space
	wake     chan struct{}   // signals lines to send; capacity 1
	closing  chan struct{}   // closed when the last line is stored
	done     chan struct{}   // closed when the sender has ended
	stop     context.CancelFunc

	sender // owned by the goroutine until done

	repeated int64 // lines that the writer repeats; guarded by mu

	patience atomic.Pointer[patience] // nil until Close begins

	closeOnce sync.Once
	closeErr  error
}

// tally counts lines and their bytes as JSON.
type tally struct{ Lines, Bytes int64 }

// OpenStream starts a stream. It does not wait for the log service. The end of ctx
// does not end the stream, because the last output of a cancelled step must be
// logged as well. Close ends it.
func OpenStream(ctx context.Context, cfg StreamConfig) *Stream {
	cfg.setDefaults()
	return startStream(ctx, cfg, newSpool(&cfg), sender{batch: maxBatch})
}

// startStream starts a stream of the lines in a spool and of those that are written. from is
// the state of the sender. The configuration has its defaults.
func startStream(ctx context.Context, cfg StreamConfig, lines *spool, from sender) *Stream {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stream{
		cfg:      cfg,
		api:      newService(&cfg),
		spool:    lines,
		splitter: lineSplitter{max: cfg.MaxLine},
		noWait:   make(chan struct{}),
		wake:     make(chan struct{}, 1),
		closing:  make(chan struct{}),
		done:     make(chan struct{}),
		stop:     stop,
		sender:   from,
	}
	go s.sendLines(ctx)
	return s
}

func (cfg *StreamConfig) setDefaults() {
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	if cfg.MaxLine <= 0 || cfg.MaxLine > 64<<10 {
		cfg.MaxLine = 64 << 10
	}
	if cfg.FlushInterval <= 0 {
		cfg.FlushInterval = 50 * time.Millisecond
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.CloseTimeout <= 0 {
		cfg.CloseTimeout = 2 * time.Minute
	}
	if cfg.MaxMemory <= 0 {
		cfg.MaxMemory = 1 << 20
	}
	if cfg.MaxSpool <= 0 {
		cfg.MaxSpool = 4 << 30
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 2 * time.Second
	}
}

// Write adds output to the log. It waits for space for at most MaxWait. It returns
// os.ErrClosed after Close, and no other error: the error of Close counts lost
// lines.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("log stream: %w", os.ErrClosed)
	}
	now := s.times.format(time.Now())
	s.splitter.write(p, func(text []byte) { s.storeLine(text, now) })
	s.spool.flush()
	s.wakeSender()
	return len(p), nil
}

// storeLine stores a line, and waits for space if necessary. The caller holds mu,
// so that lines are numbered in the order in which they are stored.
func (s *Stream) storeLine(text, now []byte) {
	if s.repeated > 0 {
		s.repeated--
		return
	}
	if s.cfg.TrimNewLineSuffix {
		if t, ok := bytes.CutSuffix(text, []byte("\n")); ok {
			text = bytes.TrimSuffix(t, []byte("\r"))
		}
	}
	for {
		moved, err := s.spool.add(text, now)
		if err == nil {
			return
		}
		if !s.waitForSpace(moved) {
			s.spool.lose(text, now, err)
			return
		}
	}
}

// waitForSpace waits for at most MaxWait until the log service has accepted lines.
// After a time-out it does not wait again for the same progress.
func (s *Stream) waitForSpace(moved <-chan struct{}) bool {
	if s.gaveUp == moved {
		return false
	}
	s.wakeSender()
	t := time.NewTimer(s.cfg.MaxWait)
	defer t.Stop()
	select {
	case <-moved:
		return true
	case <-t.C:
	case <-s.noWait:
	case <-s.done:
	}
	s.gaveUp = moved
	return false
}

func (s *Stream) wakeSender() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close ends the stream. It sends the remaining lines, archives the log and closes
// the live stream, unless the configuration skips that, and frees all resources. It
// returns within the time of ctx and CloseTimeout. Later calls return the same
// result.
//
// The error is a [LossError] if a part of the log is neither in the archive nor, for
// a stream that does not archive, in the live stream. Any other error means that the
// stream could not be closed. A stream of a [Deliverer] returns no error if the
// deliverer continues.
func (s *Stream) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Stream) close(ctx context.Context) error {
	e := s.end(ctx)
	if e.retry && s.spool.leave() {
		s.spool.log.handOver(s)
		return e.lost
	}
	s.spool.close()
	return e.err
}

// end sends the rest of the log, archives it and closes the live stream. The files of the
// spool remain.
func (s *Stream) end(ctx context.Context) ending {
	close(s.noWait)
	s.mu.Lock()
	now := s.times.format(time.Now())
	s.splitter.flush(func(text []byte) { s.storeLine(text, now) })
	s.spool.flush()
	s.closed = true
	s.mu.Unlock()

	limit := s.cfg.CloseTimeout + time.Duration(s.spool.size()>>20)*time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.patience.Store(&patience{until: time.Now().Add(handOverAfter), end: cancel})
	defer s.api.close()
	s.finishLive(ctx)
	if log := s.spool.log; log != nil && s.archives() {
		log.d.noteCompletion(s.cfg.URL, s.completed)
	}
	return s.finish(ctx)
}

// archives reports whether this stream uploads the whole log.
func (s *Stream) archives() bool {
	return !s.cfg.SkipOpeningStream && !s.cfg.SkipClosingStream && s.spool.intact()
}
