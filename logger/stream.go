package logger

import (
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
	// RequestTimeout bounds one live request. 0 means 10 s.
	RequestTimeout time.Duration
	// CloseTimeout bounds Close beyond what its context allows. 0 means 30 s.
	CloseTimeout time.Duration

	// MaxMemory is how many bytes of encoded log stay in memory; what is older
	// goes to a temporary file. 0 means 1 MiB.
	MaxMemory int
	// MaxSpool bounds memory and file together, in bytes. What does not fit is
	// lost and counted in Close's error. 0 means 1 GiB.
	MaxSpool int64
	// TempDir is the folder of the temporary file. Empty means os.TempDir().
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
// A log service that is slow, away or failing never fails or stalls a writer:
// lines gather in memory and then in a temporary file until they can be sent,
// in order, each one again until it arrives. The file has no name where the
// system allows that, so that nothing remains of it after a crash.
//
// A Stream is safe for concurrent use. It has to be closed.
type Stream struct {
	cfg   StreamConfig
	api   *service
	spool *spool

	mu     sync.Mutex // guards cut and closed
	cut    cutter
	closed bool

	wake    chan struct{} // there is something to send; capacity 1
	closing chan struct{} // closed when Close begins
	done    chan struct{} // closed when the sender has ended
	stop    context.CancelFunc

	// The sender's; read by Close after done.
	sent      int64 // offset in the spool up to which lines were sent or refused
	delivered tally // lines that the service took
	liveErr   error // why a live request failed for good

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
		spool:   &spool{maxMemory: cfg.MaxMemory, max: cfg.MaxSpool, dir: cfg.TempDir},
		cut:     cutter{max: cfg.MaxLine},
		wake:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		stop:    stop,
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
		cfg.CloseTimeout = 30 * time.Second
	}
	if cfg.MaxMemory <= 0 {
		cfg.MaxMemory = 1 << 20
	}
	if cfg.MaxSpool <= 0 {
		cfg.MaxSpool = 1 << 30
	}
}

// Write takes output. It fails only after Close, with os.ErrClosed; what cannot
// be kept is counted in Close's error instead.
func (s *Stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("log stream: %w", os.ErrClosed)
	}
	s.cut.write(p, s.line)
	s.signal()
	return len(p), nil
}

// line stores one line. It is called with mu held, so that lines get their
// numbers in the order in which they are stored.
func (s *Stream) line(text []byte) {
	out := string(text)
	if s.cfg.TrimNewLineSuffix {
		if t, ok := strings.CutSuffix(out, "\n"); ok {
			out = strings.TrimSuffix(t, "\r")
		}
	}
	s.spool.add(out, time.Now().UTC())
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
	s.mu.Lock()
	s.cut.flush(s.line)
	s.closed = true
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, s.cfg.CloseTimeout)
	defer cancel()
	defer s.api.close()
	defer s.spool.close()
	s.finishLive(ctx)
	return s.finish(ctx)
}

// archives tells whether this stream uploads the whole log.
func (s *Stream) archives() bool {
	return !s.cfg.SkipOpeningStream && !s.cfg.SkipClosingStream
}
