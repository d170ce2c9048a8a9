package clienttest

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/internal/token"
)

var errClosed = errors.New("clienttest: the server is closed")

// Server is a manager in memory. Make one with [NewServer]. Its methods are safe
// for concurrent use. The fields must not be changed.
type Server struct {
	// URL is the base URL for clients, with the prefix of [WithPrefix].
	URL string
	// Account is the id of the account and Secret its secret, as a delegate is
	// configured with them.
	Account string
	Secret  string

	http   *httptest.Server
	secret token.Secret
	plain  bool          // no extensions, see WithoutExtensions
	done   chan struct{} // closed by Close

	mu          sync.Mutex
	closed      bool
	delegates   map[string]*delegate
	registered  []*delegate // in order of registration
	submissions map[string]*Submission
	listed      []*Submission // in polls, in order
	aborting    []*Submission // named as aborted in polls
	lastID      int           // number of the latest generated id
	cursor      uint64        // of polls: grows with listed and aborting
	cursorMoved broadcast
	daemons     daemonSets

	perpetual       map[string]*perpetualTask // by id
	perpetualCursor uint64
	perpetualMoved  broadcast

	records  []Record
	counts   map[string]int
	recorded broadcast // counts have changed
}

// Config configures a [Server]. The zero value is valid.
type Config struct {
	// Account is the id of the account. It defaults to "clienttest".
	Account string
	// Secret is the secret of the account, with 32 hexadecimal characters. By default every server
	// generates one.
	Secret string
	// Prefix is the path below which the server serves the manager, such as "/gateway/manager".
	Prefix string
	// Plain makes the server behave like other managers: it answers polls at once, and names no
	// aborted tasks in them.
	Plain bool
	// TLS makes the server serve HTTPS, and may ask for client certificates. If it has no
	// certificate, the server uses its own. [Server.Certificate] returns the certificate that
	// clients must trust. Nil means HTTP.
	TLS *tls.Config
	// Middleware is put in front of the calls, for example to drop or delay some of them.
	// [CallOf] distinguishes the calls. The server records the requests before the middleware
	// sees them.
	Middleware func(http.Handler) http.Handler
}

// NewServer starts a manager with the default configuration on a loopback port. The caller
// closes it. It panics if it cannot listen.
func NewServer() *Server { return Config{}.NewServer() }

// NewServer starts a manager on a loopback port. The caller closes it. NewServer panics if it
// cannot listen or the secret is invalid.
func (cfg Config) NewServer() *Server {
	cfg.Account = cmp.Or(cfg.Account, "clienttest")
	cfg.Secret = cmp.Or(cfg.Secret, newSecret())
	secret, err := token.ParseSecret(cfg.Secret)
	if err != nil {
		panic(fmt.Sprintf("clienttest: %v", err))
	}
	prefix := strings.TrimSuffix("/"+strings.Trim(cfg.Prefix, "/"), "/")
	s := &Server{
		Account: cfg.Account, Secret: cfg.Secret, secret: secret, plain: cfg.Plain, done: make(chan struct{}),
		delegates: map[string]*delegate{}, submissions: map[string]*Submission{}, counts: map[string]int{}, perpetual: map[string]*perpetualTask{}, perpetualCursor: 1,
	}
	calls := s.mux()
	if cfg.Middleware != nil {
		calls = cfg.Middleware(calls)
	}
	s.http = httptest.NewUnstartedServer(http.StripPrefix(prefix, s.record(calls)))
	if cfg.TLS != nil {
		s.http.TLS = cfg.TLS.Clone()
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	s.URL = s.http.URL + prefix
	return s
}

// newSecret generates a secret that is visibly not a real one.
func newSecret() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "00c0ffee00c0ffee" + hex.EncodeToString(b[:])
}

func (s *Server) mux() http.Handler {
	m := chi.NewRouter()
	m.Use(s.authorize)
	for _, rt := range routes() {
		m.Method(rt.method, rt.pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rt.serve(s, w, r)
		}))
	}
	return m
}

// Close ends waiting polls and stops the server. It returns when all handlers
// have returned. Close may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.done)
	}
	s.http.Close()
}

// Certificate returns the server's certificate, nil without TLS. It is valid for
// 127.0.0.1 and example.com.
func (s *Server) Certificate() *x509.Certificate { return s.http.Certificate() }

// HTTPClient returns an HTTP client that trusts the server, for requests that a
// test writes itself. Close closes its connections.
func (s *Server) HTTPClient() *http.Client { return s.http.Client() }

// newID generates an id: the kind and a number.
func (s *Server) newID(kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextID(kind)
}

// nextID is newID for callers that hold mu.
func (s *Server) nextID(kind string) string {
	s.lastID++
	return fmt.Sprintf("%s-%d", kind, s.lastID)
}

// broadcast wakes all waiting goroutines. The owner guards it with a lock. The
// zero value is ready to use.
type broadcast struct{ ch chan struct{} }

// wait returns a channel that the next send closes.
func (b *broadcast) wait() <-chan struct{} {
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
