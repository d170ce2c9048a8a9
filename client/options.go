package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/task"
)

// Protocol is a version of the delegate protocol.
type Protocol int

// The protocols that [HTTP] speaks.
const (
	// V1 is the "dlite" protocol (PROTOCOL 1), the default.
	V1 Protocol = 1
	// V2 is the "runner" protocol (PROTOCOL 2).
	V2 Protocol = 2
)

// Retries says how often and how fast failed calls are repeated (SPEC C2). Zero
// fields take their defaults. A heartbeat is attempted once and an answer to a
// task for as long as its context allows, whatever is set here.
type Retries struct {
	// Attempts is how often a call is attempted in all. Defaults to 5; 1 means
	// no retries.
	Attempts int
	// MinWait is the pause after the first attempt; it doubles each time. Each
	// pause is shortened at random by up to a half, so that the delegates of a
	// manager that was away do not come back in step. Defaults to 200 ms.
	MinWait time.Duration
	// MaxWait bounds the pause. Defaults to 10 s. What the manager asks for in
	// Retry-After may be longer and is bounded by MaxRetryAfter.
	MaxWait time.Duration
	// MaxRetryAfter bounds what Retry-After can ask for. Defaults to 1 minute.
	MaxRetryAfter time.Duration
}

const (
	defaultAttempts      = 5
	defaultMinWait       = 200 * time.Millisecond
	defaultMaxWait       = 10 * time.Second
	defaultMaxRetryAfter = time.Minute
	defaultTimeout       = 30 * time.Second
)

// Option changes a client at its construction.
type Option func(*config)

type config struct {
	protocol  Protocol
	token     *string
	caDir     string
	certFile  string
	keyFile   string
	insecure  bool
	proxy     *ProxyConfig
	log       zerolog.Logger
	retries   Retries
	timeout   time.Duration
	maxBody   int64
	transport http.RoundTripper
	now       func() time.Time
	// checkEvery is how often, at most, the certificates' files are looked at.
	checkEvery time.Duration
}

func newConfig(opts []Option) *config {
	cfg := &config{
		protocol: V1, log: zerolog.Nop(), timeout: defaultTimeout, maxBody: task.MaxBody,
		now: time.Now, checkEvery: time.Second,
	}
	for _, o := range opts {
		o(cfg)
	}
	setDefault(&cfg.retries.Attempts, defaultAttempts)
	setDefault(&cfg.retries.MinWait, defaultMinWait)
	setDefault(&cfg.retries.MaxWait, max(defaultMaxWait, cfg.retries.MinWait))
	setDefault(&cfg.retries.MaxRetryAfter, defaultMaxRetryAfter)
	return cfg
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// check refuses what cannot work, so that it shows at start-up.
func (c *config) check() error {
	r := c.retries
	switch {
	case c.protocol != V1 && c.protocol != V2:
		return fmt.Errorf("unknown protocol %d: use client.V1 or client.V2", c.protocol)
	case c.timeout <= 0:
		return fmt.Errorf("the time-out is %s: it must be above zero", c.timeout)
	case c.maxBody <= 0:
		return fmt.Errorf("the body limit is %d bytes: it must be above zero", c.maxBody)
	case r.Attempts < 0 || r.MinWait < 0 || r.MaxWait < 0 || r.MaxRetryAfter < 0:
		return errors.New("the retry settings must not be negative")
	case r.MaxWait < r.MinWait:
		return fmt.Errorf("the longest pause between retries (%s) is below the shortest (%s)", r.MaxWait, r.MinWait)
	case (c.certFile == "") != (c.keyFile == ""):
		return errors.New("a client certificate needs both files, the certificate's and the key's")
	case c.now == nil:
		return errors.New("the clock is nil: leave the option out for the real one")
	}
	if c.transport != nil && (c.caDir != "" || c.certFile != "" || c.insecure || c.proxy != nil) {
		return errors.New("a transport of your own brings its own TLS and proxy settings: set them there and leave those options out")
	}
	return nil
}

// WithProtocol selects the protocol. Defaults to [V1].
func WithProtocol(p Protocol) Option { return func(c *config) { c.protocol = p } }

// WithToken sets a ready-made token, sent as it is on every call. The secret is
// then "". Such a token cannot be renewed: when it has expired, calls fail with
// [ErrUnauthorized].
func WithToken(token string) Option { return func(c *config) { c.token = &token } }

// WithCACertsDir trusts the certificates in a directory's files, PEM or DER,
// besides the system's (SPEC C5). Sub-directories and files whose name begins
// with a dot are skipped. Changes are noticed within about a second, when the
// next call is made; new files that cannot be read leave the old ones in force
// and are logged.
func WithCACertsDir(dir string) Option { return func(c *config) { c.caDir = dir } }

// WithClientCert presents a certificate to the manager, mutual TLS. Both files
// are PEM and are read again when they change, as with [WithCACertsDir].
func WithClientCert(certFile, keyFile string) Option {
	return func(c *config) { c.certFile, c.keyFile = certFile, keyFile }
}

// WithInsecureSkipVerify accepts any certificate. Whoever is on the way can then
// read the account's secret; it is for trials only, and logged as a warning.
func WithInsecureSkipVerify() Option { return func(c *config) { c.insecure = true } }

// WithProxy sends every call through a proxy. Without it HTTP_PROXY,
// HTTPS_PROXY and NO_PROXY of the environment count, with it they do not.
func WithProxy(p ProxyConfig) Option { return func(c *config) { c.proxy = &p } }

// WithLogger logs retries at debug level and what an operator should know at
// warning level. Defaults to no log. Secrets and tokens are never logged.
func WithLogger(l zerolog.Logger) Option { return func(c *config) { c.log = l } }

// WithRetries sets how failed calls are repeated.
func WithRetries(r Retries) Option { return func(c *config) { c.retries = r } }

// WithTimeout bounds one attempt of a call, from dialling to the last byte of
// the answer. Defaults to 30 s. An attempt of a poll that waits gets the wait on
// top. The largest bodies have to pass within it.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithMaxBody bounds requests and answers, in bytes (SPEC C6). Defaults to
// [task.MaxBody].
func WithMaxBody(n int64) Option { return func(c *config) { c.maxBody = n } }

// WithTransport makes the calls over a transport of the caller's: for tracing,
// or for a manager in the same process. It excludes the TLS and proxy options.
func WithTransport(t http.RoundTripper) Option { return func(c *config) { c.transport = t } }

// WithClock replaces time.Now for tokens, heartbeats and the dates in
// Retry-After. It must be safe for concurrent use.
func WithClock(now func() time.Time) Option { return func(c *config) { c.now = now } }
