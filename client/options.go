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
	// V1 is the "dlite" protocol (docs/protocol.md 1), the default.
	V1 Protocol = 1
	// V2 is the "runner" protocol (docs/protocol.md 2).
	V2 Protocol = 2
)

// Retries configures how often and how fast failed calls are retried (rule C2).
// Zero fields mean their defaults. Heartbeats are attempted once, and answers to
// tasks until their context ends, independent of these settings.
type Retries struct {
	// Attempts is the maximum number of attempts of a call. Defaults to 5. 1 means
	// no retries.
	Attempts int
	// MinWait is the longest pause after the first attempt. The pause doubles with
	// each attempt. A random factor shortens it by up to a half, so that delegates
	// do not retry at the same time after an outage. Defaults to 200 ms.
	MinWait time.Duration
	// MaxWait limits the pause. Defaults to 10 s. A Retry-After header of the
	// manager may ask for a longer pause, up to MaxRetryAfter.
	MaxWait time.Duration
	// MaxRetryAfter limits the pause of a Retry-After header. Defaults to 1 minute.
	MaxRetryAfter time.Duration
}

const (
	defaultAttempts      = 5
	defaultMinWait       = 200 * time.Millisecond
	defaultMaxWait       = 10 * time.Second
	defaultMaxRetryAfter = time.Minute
	defaultTimeout       = 30 * time.Second
)

// Option configures a client.
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
	maxBody   int64 // bytes of a request and of an answer (rule C6)
	transport http.RoundTripper
	waiting   func(stages map[string]int)
	now       func() time.Time // for tokens, heartbeats and Retry-After
	// checkEvery is the shortest time between checks of the certificate files.
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

// validate reports settings that cannot work.
func (c *config) validate() error {
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
		return fmt.Errorf("MaxWait (%s) is below MinWait (%s): it must not be shorter", r.MaxWait, r.MinWait)
	case (c.certFile == "") != (c.keyFile == ""):
		return errors.New("a client certificate needs two files: the certificate and its key")
	}
	if c.transport != nil && (c.caDir != "" || c.certFile != "" || c.insecure || c.proxy != nil) {
		return errors.New("a custom transport excludes the TLS and proxy options: configure them in the transport")
	}
	return nil
}

// WithProtocol selects the protocol. Defaults to [V1].
func WithProtocol(p Protocol) Option { return func(c *config) { c.protocol = p } }

// WithToken sets a fixed token for every call. The secret must then be "". The
// client cannot renew the token: after its expiry calls fail with
// [ErrUnauthorized].
func WithToken(token string) Option { return func(c *config) { c.token = &token } }

// WithCACertsDir trusts the certificates in the files of a directory, PEM or DER,
// in addition to the system's certificates (rule C5). It skips subdirectories and
// files whose names begin with a dot. A call reads the files again if they have
// changed, at most once a second. If the new files are invalid, the client logs a
// warning and uses the previous certificates.
func WithCACertsDir(dir string) Option { return func(c *config) { c.caDir = dir } }

// WithClientCert presents a client certificate to the manager. Both files are PEM.
// Changes are handled as with [WithCACertsDir].
func WithClientCert(certFile, keyFile string) Option {
	return func(c *config) { c.certFile, c.keyFile = certFile, keyFile }
}

// WithInsecureSkipVerify accepts any certificate of the manager. It is for trials
// only, because an attacker on the network can then read the account secret. The
// client logs a warning.
func WithInsecureSkipVerify() Option { return func(c *config) { c.insecure = true } }

// WithProxy sends every call through a proxy. It replaces HTTP_PROXY, HTTPS_PROXY
// and NO_PROXY of the environment, which the client uses by default.
func WithProxy(p ProxyConfig) Option { return func(c *config) { c.proxy = &p } }

// WithLogger sets the logger for retries (debug level) and for problems that an
// operator must solve (warning level). By default the client logs nothing. It
// never logs secrets and tokens.
func WithLogger(l zerolog.Logger) Option { return func(c *config) { c.log = l } }

// WithRetries configures the retries of failed calls.
func WithRetries(r Retries) Option { return func(c *config) { c.retries = r } }

// WithTimeout limits one attempt of a call, from dialling to the last byte of the
// answer. Defaults to 30 s. The largest bodies must pass within that time. Polls
// that wait get their wait in addition.
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithTransport sets the transport of the calls, for example for tracing or for a
// manager in the same process. It excludes the TLS and proxy options.
func WithTransport(t http.RoundTripper) Option { return func(c *config) { c.transport = t } }

// WithWaiting calls f with the answers to heartbeats of our manager, if the delegate runs stages on virtual machines: the
// numbers of stages that wait for the delegate, by the pool that they name, or "" for those that name none. A pool without
// such stages is not among them. Other managers do not report them, and f is not called. F must return soon.
func WithWaiting(f func(stages map[string]int)) Option {
	return func(c *config) { c.waiting = f }
}
