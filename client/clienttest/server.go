package clienttest

import (
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

	"github.com/delegate-io/dlite/internal/token"
	"github.com/go-chi/chi/v5"
)

// ErrClosed means that the server was closed.
var ErrClosed = errors.New("clienttest: the server is closed")

// Server is a manager in memory. Make one with [NewServer] or [NewTLSServer]. Its
// methods are safe for concurrent use; the fields must not be changed.
type Server struct {
	// URL is the base URL for clients, with the prefix of [WithPrefix].
	URL string
	// Account is the account's id and Secret its secret, as a delegate is
	// configured with them. The secret is another one for each server.
	Account string
	Secret  string

	http   *httptest.Server
	secret token.Secret
	plain  bool
	calls  *classifier
	faults *Faults
	done   chan struct{} // closed by Close

	mu        sync.Mutex
	closed    bool
	delegates map[string]*delegate
	joined    []*delegate // in order of their registration
	tasks     map[string]*Submission
	listed    []*Submission // what polls list, in order
	aborting  []*Submission // what polls name as aborted
	made      int           // ids
	seq       uint64        // the cursor of polls: rises when listed or aborting grows
	news      signal        // seq has risen
	records   []Record
	counts    map[Call]int
	recorded  signal // counts have risen
}

// Option configures a [Server].
type Option func(*config)

type config struct {
	account, secret, prefix string
	plain                   bool
	seed                    uint64
	tls                     *tls.Config
}

// WithAccount sets the account's id. The default is "clienttest".
func WithAccount(id string) Option { return func(c *config) { c.account = id } }

// WithSecret sets the account's secret: 32 hexadecimal characters. The default
// is made for each server.
func WithSecret(secret string) Option { return func(c *config) { c.secret = secret } }

// WithPrefix puts the manager below a path, such as "/gateway/manager".
func WithPrefix(path string) Option {
	return func(c *config) { c.prefix = "/" + strings.Trim(path, "/") }
}

// WithoutExtensions makes it a plain manager that somebody else wrote: polls are
// answered at once whatever they ask for, and name no aborted tasks.
func WithoutExtensions() Option { return func(c *config) { c.plain = true } }

// WithSeed seeds the faults that have a probability, see [NewFaults]. The default
// is 1.
func WithSeed(seed uint64) Option { return func(c *config) { c.seed = seed } }

// WithTLSConfig sets the TLS configuration of a [NewTLSServer], for example to ask
// for client certificates. Without certificates in it the server uses its own.
func WithTLSConfig(cfg *tls.Config) Option { return func(c *config) { c.tls = cfg.Clone() } }

// NewServer starts a manager on a loopback port. The caller closes it. It panics
// when it cannot listen, or when an option makes no sense.
func NewServer(opts ...Option) *Server {
	s, _ := newServer(opts)
	s.http.Start()
	s.URL = s.http.URL + s.URL
	return s
}

// NewTLSServer is NewServer with TLS. [Server.Certificate] is what clients have
// to trust.
func NewTLSServer(opts ...Option) *Server {
	s, cfg := newServer(opts)
	s.http.TLS = cfg.tls
	s.http.StartTLS()
	s.URL = s.http.URL + s.URL
	return s
}

func newServer(opts []Option) (*Server, config) {
	cfg := config{account: "clienttest", seed: 1}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.account == "" {
		panic("clienttest: an empty account id")
	}
	if cfg.secret == "" {
		cfg.secret = fakeSecret()
	}
	secret, err := token.ParseSecret(cfg.secret)
	if err != nil {
		panic(fmt.Sprintf("clienttest: %v", err))
	}
	s := &Server{
		URL: strings.TrimSuffix(cfg.prefix, "/"), Account: cfg.account, Secret: cfg.secret,
		secret: secret, plain: cfg.plain, calls: newClassifier(), faults: NewFaults(cfg.seed),
		done: make(chan struct{}), delegates: map[string]*delegate{}, tasks: map[string]*Submission{},
		counts: map[Call]int{},
	}
	s.http = httptest.NewUnstartedServer(http.StripPrefix(s.URL, s.record(s.faults.Wrap(s.mux()))))
	return s, cfg
}

// fakeSecret makes a secret that nobody takes for a real one.
func fakeSecret() string {
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

// Close cuts what hangs, ends waiting polls and stops the server. It returns when
// all its handlers have. Closing twice is harmless.
func (s *Server) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.done)
		s.faults.Release()
	}
	s.http.Close()
}

// Certificate is the server's, nil without TLS. It is valid for 127.0.0.1 and
// example.com.
func (s *Server) Certificate() *x509.Certificate { return s.http.Certificate() }

// HTTPClient is a plain HTTP client that trusts the server; for requests that a
// test writes by hand. Its connections end with the server.
func (s *Server) HTTPClient() *http.Client { return s.http.Client() }

// Inject spoils requests, see [Fault].
func (s *Server) Inject(f Fault) *Injection { return s.faults.Inject(f) }

// Faults is what [Server.Inject] injects into.
func (s *Server) Faults() *Faults { return s.faults }
