package logger

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// StreamConfig says where a step's output goes and how (PROTOCOL 4). URL is
// required, Account and Key by every log service.
type StreamConfig struct {
	// URL is the log service's base URL; it may have a path.
	URL string
	// Token is sent to the log service, and never to an upload link.
	Token string
	// Account owns the log and Key names it. Any text will do; both are escaped.
	Account string
	Key     string
	// Writer is what the stream calls itself in [WriterHeader]: the same name
	// as before for who goes on with a log from its first line. Empty is a random
	// name.
	Writer string

	// IndirectUpload archives the log through the service (POST /blob) instead
	// of an upload link.
	IndirectUpload bool
	// SkipOpeningStream leaves the opening of the stream to somebody else. The
	// end then makes the stream's content the archive; nothing is uploaded.
	SkipOpeningStream bool
	// SkipClosingStream leaves the stream open and archives nothing: somebody
	// else will do both.
	SkipClosingStream bool
	// TrimNewLineSuffix takes the newline off every line.
	TrimNewLineSuffix bool

	// HTTPClient makes the requests. Redirects are not followed, whatever it
	// says: they would carry the token away. Nil means a client of the stream's
	// own that obeys HTTP_PROXY; share one between streams to share connections.
	HTTPClient *http.Client

	// MaxLine is the length in bytes at which a line is cut into pieces. 0 means
	// 64 KiB, and no value counts for more.
	MaxLine int
	// FlushInterval is how long lines wait for company. 0 means 50 ms.
	FlushInterval time.Duration
	// RequestTimeout bounds one live request. An upload may take longer, but is
	// tried again when nothing has moved for three times as long. 0 means 10 s.
	RequestTimeout time.Duration
	// CloseTimeout bounds Close beyond what its context allows; each MiB of log
	// adds a second to it. 0 means 2 min, which outlasts a short absence of the
	// log service.
	CloseTimeout time.Duration

	// MaxMemory is how many bytes of encoded log stay in memory; what is older
	// goes to temporary files. 0 means 1 MiB.
	MaxMemory int
	// MaxSpool bounds memory and files together, in bytes. 0 means 4 GiB. When it
	// is reached, or the disk is full, lines that the log service has make room,
	// and its stream becomes the archive in place of an upload. When that is not
	// enough, Write waits; see MaxWait.
	MaxSpool int64
	// MaxWait is how long Write waits for room while the log service takes
	// nothing. Then lines are lost, and counted in Close's error, until it takes
	// something again. 0 means 2 s.
	MaxWait time.Duration
	// TempDir is the folder of the temporary files. Empty means os.TempDir().
	TempDir string
}

// LossError is Close's error when a part of the log reached neither the archive
// nor the live stream (SPEC L2).
type LossError struct {
	// Lines and Bytes say how much was lost. Bytes are those of the lines as
	// JSON.
	Lines, Bytes int64
	// Err is the reason.
	Err error
}

// Error says how much was lost and why.
func (e *LossError) Error() string {
	return fmt.Sprintf("%d lines (%d bytes) of log lost: %v", e.Lines, e.Bytes, e.Err)
}

// Unwrap is the reason.
func (e *LossError) Unwrap() error { return e.Err }

// Stream is an io.Writer that carries one log to a log service (SPEC L2).
//
// Output must be masked before it gets here. Any bytes will do: Write cuts them
// into lines itself. Text that is not UTF-8 arrives with U+FFFD in the place of
// each wrong byte, because the lines travel as JSON.
//
// A log service that is slow, away or failing never fails a writer: lines gather
// in memory and then in temporary files until they can be sent, in order, each
// one again until it arrives. A writer is held up only when that room is full,
// and never for long. The files have no name where the system allows that, so
// that nothing remains of them after a crash. A log service that knows
// [ResumeHeader] and has lost lines gets them once more.
//
// A Stream is safe for concurrent use. It has to be closed.
type Stream struct {
	cfg   StreamConfig
	api   *service
	spool *spool

	mu      sync.Mutex // guards what follows to gaveUp; held while a writer waits for room
	cut     cutter
	stamp   stamp
	closed  bool
	gaveUp  <-chan struct{} // the progress that was waited for in vain
	hurry   chan struct{}   // closed when Close begins: nobody waits for room any more
	wake    chan struct{}   // there is something to send; capacity 1
	closing chan struct{}   // closed when the last line is stored
	done    chan struct{}   // closed when the sender has ended
	stop    context.CancelFunc

	sender // the goroutine's until done

	closeOnce sync.Once
	closeErr  error
}

// tally counts lines and their bytes as JSON.
type tally struct{ lines, bytes int64 }

// OpenStream starts a stream. It does not wait for the log service. The end of
// ctx does not end the stream, for the end of a cancelled step is worth logging
// too; Close does.
func OpenStream(ctx context.Context, cfg StreamConfig) *Stream {
	cfg.setDefaults()
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stream{
		cfg:     cfg,
		api:     newService(&cfg),
		spool:   newSpool(&cfg),
		cut:     cutter{max: cfg.MaxLine},
		hurry:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		stop:    stop,
		sender:  sender{batch: maxBatch},
	}
	go s.send(ctx)
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

// Write takes output. It waits only as MaxWait says. It fails only after Close,
// with os.ErrClosed; what cannot be kept is counted in Close's error instead.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("log stream: %w", os.ErrClosed)
	}
	now := s.stamp.format(time.Now())
	s.cut.write(p, func(text []byte) { s.line(text, now) })
	s.signal()
	return len(p), nil
}

// line stores one line, and waits for room where it has to. It is called with mu
// held, so that lines get their numbers in the order in which they are stored.
func (s *Stream) line(text, now []byte) {
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
		if !s.room(moved) {
			s.spool.lose(text, now, err)
			return
		}
	}
}

// room waits until the log service has taken something, but no longer than
// MaxWait, and not a second time for what was waited for in vain.
func (s *Stream) room(moved <-chan struct{}) bool {
	if s.gaveUp == moved {
		return false
	}
	s.signal()
	t := time.NewTimer(s.cfg.MaxWait)
	defer t.Stop()
	select {
	case <-moved:
		return true
	case <-t.C:
	case <-s.hurry:
	case <-s.done:
	}
	s.gaveUp = moved
	return false
}

func (s *Stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close ends the stream: it sends what is left, archives the whole log and
// closes the live stream, as far as the configuration has it do so, and then
// frees everything. It takes no longer than ctx and CloseTimeout allow, whatever
// the log service does. Called again it returns the same result.
//
// The error is a [LossError] when a part of the log is neither in the archive
// nor, where this stream archives nothing, in the live stream. Any other error
// means that the stream could not be closed.
func (s *Stream) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.close(ctx) })
	return s.closeErr
}

func (s *Stream) close(ctx context.Context) error {
	close(s.hurry)
	s.mu.Lock()
	now := s.stamp.format(time.Now())
	s.cut.flush(func(text []byte) { s.line(text, now) })
	s.closed = true
	s.mu.Unlock()

	limit := s.cfg.CloseTimeout + time.Duration(s.spool.size()>>20)*time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer s.api.close()
	defer s.spool.close()
	s.finishLive(ctx)
	return s.finish(ctx)
}

// archives tells whether this stream uploads the whole log.
func (s *Stream) archives() bool {
	return !s.cfg.SkipOpeningStream && !s.cfg.SkipClosingStream && s.spool.intact()
}
