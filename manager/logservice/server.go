package logservice

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/logger"
)

// Config configures a [Server]. Authorize is required.
type Config struct {
	// Authorize tells whether a token gives access to the logs of an account,
	// for reading and writing. It must be safe for concurrent use. See [Tokens].
	Authorize func(account, token string) bool

	// PublicURL is the base URL by which writers reach the server, for upload
	// links. Empty means what the request for the link was sent to, which is
	// wrong behind a proxy that changes host, scheme or path.
	PublicURL string

	// MaxPut bounds the body of one PUT /stream, in bytes. 0 means 32 MiB.
	MaxPut int64
	// MaxStream bounds the lines of one live stream, in bytes. 0 means 64 MiB.
	MaxStream int64
	// MaxBlob bounds one archive, in bytes. 0 means 64 MiB.
	MaxBlob int64
	// MaxTotal bounds all streams and archives together, in bytes. Where it is
	// exceeded, closed logs go first, those closed longest ago before others; a
	// request that does not fit even then is refused with status 507. 0 means
	// 512 MiB.
	MaxTotal int64
	// MaxLogs bounds the number of logs likewise. 0 means 10,000.
	MaxLogs int
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
}

func (c *Config) setDefaults() {
	def(&c.MaxPut, 32<<20)
	def(&c.MaxStream, 64<<20)
	def(&c.MaxBlob, 64<<20)
	def(&c.MaxTotal, 512<<20)
	def(&c.MaxLogs, 10_000)
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

// Tokens authorises one fixed token for each account, given as a map of
// accounts to tokens. Accounts without a token, and an empty token, are refused.
func Tokens(tokens map[string]string) func(account, token string) bool {
	return func(account, token string) bool {
		want := tokens[account]
		return want != "" && subtle.ConstantTimeCompare([]byte(want), []byte(token)) == 1
	}
}

// Server is a log service. It is an http.Handler, at the root or under any
// prefix, and safe for concurrent use.
type Server struct {
	cfg     Config
	store   *store
	links   *links
	handler http.Handler
}

// New makes a log service. It panics without Authorize: a log service that
// shows every log to everybody is a mistake in the program.
func New(cfg Config) *Server {
	if cfg.Authorize == nil {
		panic("logservice: no Authorize in the configuration")
	}
	cfg.setDefaults()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s := &Server{cfg: cfg, store: newStore(&cfg), links: newLinks(key, cfg.LinkTTL, cfg.Now)}
	s.handler = s.routes()
	return s
}

// ServeHTTP answers the calls of PROTOCOL 4.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all readers, those of Tail too, and frees all logs. Calls that
// arrive later are answered with status 503.
func (s *Server) Close() { s.store.close() }

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
		case id.account == "" || id.key == "":
			fail(w, &httpError{http.StatusBadRequest, "accountID and key are required"})
		case !s.cfg.Authorize(id.account, r.Header.Get(logger.TokenHeader)):
			fail(w, &httpError{http.StatusUnauthorized, "the token gives no access to the account"})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// idOf is the log that a request is about. "/" and ":" may be escaped or not.
func idOf(r *http.Request) logID {
	q := r.URL.Query()
	return logID{account: q.Get("accountID"), key: q.Get("key")}
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error_msg": err.Error()})
}
