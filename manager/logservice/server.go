package logservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// Streams stores live streams, see package manager/redis.
type Streams = livelog.Streams

// Config configures a [Server]. Authorize is required. With all other fields zero, the
// log service stores everything in memory. Dir makes it durable.
type Config struct {
	// Authorize reports whether a request is allowed. It must be safe for concurrent
	// use. See [Signer] and [Tokens].
	Authorize func(Access) bool

	// Dir is the folder for streams and archives. New creates it if necessary. Only one
	// process may use it at the same time. Acknowledged lines survive the end of the
	// process, also by SIGKILL. If the machine fails, streams may lose their last
	// second, which a running writer sends again. Empty means memory.
	Dir string
	// Archive is the URL of a bucket for archives in the format of gocloud.dev/blob,
	// such as "s3://logs?region=eu-west-1&prefix=dlite/". Only this log service may use
	// the bucket or prefix, with all servers that share its Streams. The program must
	// import the driver, such as gocloud.dev/blob/s3blob. Empty means the folder
	// "archive" in Dir, or memory.
	Archive string
	// Streams stores the live streams. Nil means the folder "streams" in Dir, or memory.
	// Close of the server closes it. All servers with the same Streams of package
	// manager/redis, Archive and Key are one log service: a client may send each request to
	// any of them.
	Streams Streams
	// Key signs upload links. It must have at least 32 bytes. Nil means a generated
	// key. The server stores that key in Dir; without Dir, the key is lost with the
	// process.
	Key []byte

	// PublicURL is the base URL of upload links. Empty means the URL of the request for
	// the link. That is wrong behind a proxy that changes host, scheme or path.
	PublicURL string

	// MaxPut bounds the body of one PUT /stream, in bytes. The server refuses a larger
	// body with status 413. It has at most four times MaxPut bytes of large bodies in
	// memory, at most half of that for one account; a body that does not fit waits up to
	// 20 seconds and is then refused with status 429. 0 means 16 MiB.
	MaxPut int64
	// MaxStream bounds one live stream, in bytes. The server refuses more lines with
	// status 413. 0 means 64 MiB in memory and 4 GiB with Dir or Streams. Streams may
	// have a lower limit.
	MaxStream int64
	// MaxBlob bounds one archive, in bytes. The server refuses a larger one with status
	// 413. 0 means MaxStream.
	MaxBlob int64
	// MaxTotal bounds all streams and archives together, in bytes. Above it, the server
	// removes complete logs of the account that uses most, those with the oldest
	// completion first. So an account that uses less than an equal part never loses a log
	// for another one. Live streams of one account may use as much as those of the others
	// leave free, at most half of MaxTotal. The server refuses a request that does not fit
	// with status 507. 0 means 512 MiB in memory and 64 GiB with Dir or Streams.
	MaxTotal int64
	// MaxLogs bounds the number of streams and archives in the same way. 0 means 10,000
	// in memory and 1,000,000 with Dir or Streams.
	MaxLogs int
	// MaxAge is the age at which the server removes an archive. It checks archives
	// every hour. 0 means that archives stay until their space is needed.
	MaxAge time.Duration
	// MaxReaders bounds the number of concurrent stream readers. One account may have as
	// many as the others leave free, at most half. The server refuses more with status
	// 429. Each reader needs at most about 1 MiB. 0 means 1,000.
	MaxReaders int
	// IdleTimeout is the time after which the server closes an open stream without
	// writes. 0 means 24 h.
	IdleTimeout time.Duration
	// LinkTTL is the validity of an upload link. 0 means 1 h.
	LinkTTL time.Duration
	// PingInterval is the interval of the comments that keep the connection of a silent
	// stream alive. 0 means 15 s.
	PingInterval time.Duration

	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Logger logs failures of background work. The zero value logs nothing.
	Logger zerolog.Logger
}

// maxUploads bounds the archives that arrive at the same time.
const maxUploads = 64

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

// Server is a log service. It is an http.Handler for the root or any prefix, and is
// safe for concurrent use.
type Server struct {
	cfg     Config
	store   *store
	links   *links
	bodies  *budget // bytes of PUT bodies that are read at the same time
	uploads *budget // archives that arrive at the same time
	readers *budget // readers of streams
	handler http.Handler

	closeOnce sync.Once
	closeErr  error
}

// New returns a log service; the caller must close it. New fails if it cannot open Dir
// or Archive, and with Streams of package manager/redis if Archive or Key is missing. It panics
// without Authorize, because such a log service would show every log to every client.
func New(cfg Config) (*Server, error) {
	if cfg.Authorize == nil {
		panic("logservice: no Authorize in the configuration")
	}
	cfg.setDefaults()
	s := &Server{
		cfg: cfg, bodies: newBudget("memory", 4*cfg.MaxPut),
		uploads: newBudget("uploads", maxUploads), readers: newBudget("readers", int64(cfg.MaxReaders)),
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	s.handler = httpserver.Guard(s.routes())
	return s, nil
}

// open opens the archive and the streams that the configuration names.
func (s *Server) open() (err error) {
	shared, _ := s.cfg.Streams.(livelog.Shared)
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

// ServeHTTP answers the calls of docs/protocol.md, section 4.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all readers, including those of Tail. It makes all streams durable and
// frees the other resources. Later calls are answered with status 503. A second Close
// does nothing.
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

// authorize checks the token against the account and the key of the query.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := idOf(r)
		err := checkFields(r)
		switch {
		case err != nil:
			fail(w, err)
		case !s.cfg.Authorize(Access{
			Account: id.Account, Key: id.Key, Token: r.Header.Get(logheader.Token), Write: r.Method != http.MethodGet,
		}):
			fail(w, &httpError{http.StatusUnauthorized, "the token gives no access to this log"})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// idOf returns the log that the query of a request names. The client may escape "/" and
// ":".
func idOf(r *http.Request) livelog.ID {
	q := r.URL.Query()
	return livelog.ID{Account: q.Get("accountID"), Key: q.Get("key")}
}

// httpError is an error with a status.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

// fail answers with an error as docs/protocol.md, section 4, describes.
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
		livelog.ErrUnknown: http.StatusNotFound, livelog.ErrClosed: http.StatusServiceUnavailable, livelog.ErrTooLong: http.StatusRequestEntityTooLarge,
		livelog.ErrUnavailable: http.StatusServiceUnavailable, livelog.ErrFull: http.StatusInsufficientStorage,
	} {
		if errors.Is(err, known) {
			status = code
		}
	}
	if behind := (*livelog.BehindError)(nil); errors.As(err, &behind) {
		status = http.StatusConflict
	}
	if errors.Is(err, livelog.ErrUnavailable) || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error_msg": err.Error()})
}
