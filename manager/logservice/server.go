package logservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/delegate-io/dlite/logger"
)

// Config configures a [Server]. Authorize is required. What is left out makes a
// log service in memory, which is gone with the process; Dir makes it a durable
// one.
type Config struct {
	// Authorize tells whether a request may have what it asks for. It must be safe
	// for concurrent use. See [Signer] and [Tokens].
	Authorize func(Access) bool

	// Dir is the folder for streams and archives. It is made when it is not there,
	// and belongs to one process at a time. Everything that was acknowledged
	// survives the end of the process, also by SIGKILL; streams survive the end of
	// the machine but for their last second, which a writer that still runs sends
	// again. Empty means memory.
	Dir string
	// Archive is the URL of a bucket for archives, as gocloud.dev/blob knows it,
	// such as "s3://logs?region=eu-west-1&prefix=dlite/", and of this log service
	// alone, with all servers that share its Streams. The program imports the driver, such as gocloud.dev/blob/s3blob. Empty
	// means the folder "archive" in Dir, or memory.
	Archive string
	// Streams keeps the live streams. Nil means [OpenStreams] on the folder
	// "streams" in Dir, or [NewStreams]. Close closes it. When they are [Shared],
	// any number of servers with the same Streams, Archive and Key are one log
	// service: each request may go to another one.
	Streams Streams
	// Key signs upload links; at least 32 bytes. Nil means one that is kept in
	// Dir, or that lasts as long as the process.
	Key []byte

	// PublicURL is the base URL by which writers reach the server, for upload
	// links. Empty means what the request for the link was sent to, which is
	// wrong behind a proxy that changes host, scheme or path.
	PublicURL string

	// MaxPut bounds the body of one PUT /stream, in bytes; over it a request is
	// refused with status 413. As many such bodies are read at once as fit into
	// four times that. 0 means 16 MiB.
	MaxPut int64
	// MaxStream bounds one live stream, in bytes, likewise. 0 means 64 MiB in
	// memory and 4 GiB with Dir or Streams, which may have a limit of their own.
	MaxStream int64
	// MaxBlob bounds one archive, in bytes, likewise. 0 means as MaxStream.
	MaxBlob int64
	// MaxTotal bounds all streams and archives together, in bytes. Where it is
	// exceeded, complete logs go, those that were completed longest ago before
	// others; a request that does not fit even then is refused with status 507. 0
	// means 512 MiB in memory and 64 GiB with Dir or Streams.
	MaxTotal int64
	// MaxLogs bounds the number of streams and archives likewise. 0 means 10,000
	// in memory and 1,000,000 with Dir or Streams.
	MaxLogs int
	// MaxAge is how long an archive is kept; they are looked through hourly. 0
	// means until the room is needed.
	MaxAge time.Duration
	// MaxReaders bounds the readers of streams at one time; over it they are
	// answered with status 503. Each takes about 1 MiB at most. 0 means 1,000.
	MaxReaders int
	// IdleTimeout is how long an open stream that nobody writes to counts as
	// open. After that it is closed like one whose writer did so. 0 means 24 h.
	IdleTimeout time.Duration
	// LinkTTL is how long an upload link is good. 0 means 1 h.
	LinkTTL time.Duration
	// PingInterval is how often a reader of a silent stream gets a comment that
	// keeps its connection alive. 0 means 15 s.
	PingInterval time.Duration

	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Logger tells of what fails behind the scenes. The zero value is silent.
	Logger zerolog.Logger
}

func (c *Config) setDefaults() {
	def(&c.MaxPut, 16<<20)
	if c.Dir == "" && c.Streams == nil {
		def(&c.MaxStream, 64<<20)
		def(&c.MaxTotal, 512<<20)
		def(&c.MaxLogs, 10_000)
	}
	def(&c.MaxStream, 4<<30)
	def(&c.MaxTotal, 64<<30)
	def(&c.MaxLogs, 1_000_000)
	def(&c.MaxBlob, c.MaxStream)
	def(&c.MaxReaders, 1000)
	def(&c.IdleTimeout, 24*time.Hour)
	def(&c.LinkTTL, time.Hour)
	def(&c.PingInterval, 15*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Server is a log service. It is an http.Handler, at the root or under any
// prefix, and safe for concurrent use.
type Server struct {
	cfg     Config
	store   *store
	links   *links
	bodies  *semaphore.Weighted // bytes of PUTs that are read
	readers atomic.Int64
	handler http.Handler

	closeOnce sync.Once
	closeErr  error
}

// New makes a log service, which has to be closed. It fails when Dir or Archive
// cannot be opened, and when Streams are [Shared] without an Archive and a Key to
// share. It panics without Authorize: a log service that shows every log to
// everybody is a mistake in the program.
func New(cfg Config) (*Server, error) {
	if cfg.Authorize == nil {
		panic("logservice: no Authorize in the configuration")
	}
	cfg.setDefaults()
	s := &Server{cfg: cfg, bodies: semaphore.NewWeighted(4 * cfg.MaxPut)}
	if err := s.open(); err != nil {
		return nil, err
	}
	s.handler = s.routes()
	return s, nil
}

// open opens what the configuration names.
func (s *Server) open() (err error) {
	shared, _ := s.cfg.Streams.(Shared)
	if shared != nil && s.cfg.Dir == "" && (s.cfg.Archive == "" || s.cfg.Key == nil) {
		return errors.New("servers that share streams need the same Archive, and the same Key for upload links")
	}
	key, archiveDir := s.cfg.Key, ""
	if key == nil {
		key = newKey()
	}
	if dir := s.cfg.Dir; dir != "" {
		archiveDir = filepath.Join(dir, "archive")
		if s.cfg.Key == nil {
			if key, err = LoadKey(filepath.Join(dir, "key")); err != nil {
				return err
			}
		}
	}
	a, err := openArchive(context.Background(), s.cfg.Archive, archiveDir)
	if err != nil {
		return err
	}
	streams := s.cfg.Streams
	switch {
	case streams != nil:
	case s.cfg.Dir != "":
		streams, err = openFolder(filepath.Join(s.cfg.Dir, "streams"), s.cfg.Now)
	default:
		streams, err = openJournals(newMemory(), s.cfg.Now)
	}
	if err != nil {
		return errors.Join(err, a.close())
	}
	lazy := s.cfg.Dir == "" && s.cfg.Archive == "" && s.cfg.Streams == nil
	s.links = newLinks(key, s.cfg.LinkTTL, s.cfg.Now, shared)
	s.store = newStore(&s.cfg, streams, a, lazy)
	return nil
}

// ServeHTTP answers the calls of PROTOCOL 4.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all readers, those of Tail too, makes durable what is there, and
// frees the rest. Calls that arrive later are answered with status 503. Called
// again it does nothing.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.store.close() })
	return s.closeErr
}

func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &httpError{http.StatusNotFound, "no such call"})
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &httpError{http.StatusMethodNotAllowed, "no such method here"})
	})
	r.Put(uploadPath+"{link}", s.putLink)
	r.Group(func(r chi.Router) {
		r.Use(s.authorize)
		r.Post("/stream", s.openStream)
		r.Put("/stream", s.appendStream)
		r.Delete("/stream", s.closeStream)
		r.Get("/stream", s.readStream)
		r.Post("/blob", s.postBlob)
		r.Get("/blob", s.readBlob)
		r.Post("/blob/link/upload", s.uploadLink)
	})
	return r
}

// authorize checks the token against the account that the query names.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := idOf(r)
		switch {
		case id.Account == "" || id.Key == "":
			fail(w, &httpError{http.StatusBadRequest, "accountID and key are required"})
		case !s.cfg.Authorize(Access{
			Account: id.Account, Key: id.Key, Token: r.Header.Get(logger.TokenHeader), Write: r.Method != http.MethodGet,
		}):
			fail(w, &httpError{http.StatusUnauthorized, "the token gives no access to this log"})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// idOf is the log that a request is about. "/" and ":" may be escaped or not.
func idOf(r *http.Request) ID {
	q := r.URL.Query()
	return ID{Account: q.Get("accountID"), Key: q.Get("key")}
}

// httpError is an error with its answer.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

// fail answers with an error the way PROTOCOL 4 has it.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if e := (*httpError)(nil); errors.As(err, &e) {
		status = e.status
	}
	if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
		status = http.StatusRequestEntityTooLarge
		err = fmt.Errorf("the body is over the limit of %d bytes", big.Limit)
	}
	for known, code := range map[error]int{
		ErrUnknown: http.StatusNotFound, ErrClosed: http.StatusServiceUnavailable, ErrTooLong: http.StatusRequestEntityTooLarge,
		ErrUnavailable: http.StatusServiceUnavailable, ErrFull: http.StatusInsufficientStorage,
	} {
		if errors.Is(err, known) {
			status = code
		}
	}
	if behind := (*BehindError)(nil); errors.As(err, &behind) {
		status = http.StatusConflict
	}
	if errors.Is(err, ErrUnavailable) {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error_msg": err.Error()})
}
