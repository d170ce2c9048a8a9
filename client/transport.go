package client

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// newTransport returns the default transport.
func newTransport(cfg *config) (http.RoundTripper, error) {
	proxy := http.ProxyFromEnvironment
	if cfg.proxy != nil {
		var err error
		if proxy, err = cfg.proxy.proxyFunc(); err != nil {
			return nil, err
		}
	}
	build := func(c *tls.Config) *http.Transport {
		dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
		return &http.Transport{
			Proxy:               proxy,
			DialContext:         dialer.DialContext,
			TLSClientConfig:     c,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true, // a custom TLS configuration disables HTTP/2
			// Many concurrent calls go to one host. With the default of 2 most calls
			// would dial.
			MaxIdleConnsPerHost:   256,
			IdleConnTimeout:       60 * time.Second,
			ExpectContinueTimeout: time.Second,
			// Detects a dead HTTP/2 connection. Otherwise every call on it would wait
			// for its time-out.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		}
	}
	files := trustFiles{caDir: cfg.caDir, certFile: cfg.certFile, keyFile: cfg.keyFile}
	seen, err := files.snapshot()
	if err != nil {
		return nil, err
	}
	trust, err := files.load(cfg.insecure, cfg.log)
	if err != nil {
		return nil, err
	}
	if !files.isConfigured() {
		return build(trust), nil
	}
	t := &reloadingTransport{files: files, insecure: cfg.insecure, build: build, log: cfg.log, every: cfg.checkEvery, seen: seen}
	t.current.Store(build(trust))
	t.next.Store(time.Now().Add(t.every).UnixNano())
	return t, nil
}

// reloadingTransport is a transport whose certificates follow their files (rule
// C5). A request checks the files, at most once per every, and replaces the
// http.Transport if they have changed. New connections then use the new
// certificates, and the idle old connections are closed. It needs no goroutine.
type reloadingTransport struct {
	files    trustFiles
	insecure bool
	build    func(*tls.Config) *http.Transport
	log      zerolog.Logger
	every    time.Duration

	current atomic.Pointer[http.Transport]
	next    atomic.Int64 // time of the next check, Unix nanoseconds

	mu      sync.Mutex // held by the request that checks; the others continue
	seen    snapshot   // guarded by mu: the files of current
	problem string     // guarded by mu: the latest logged problem
}

// RoundTrip implements [http.RoundTripper].
func (t *reloadingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if now := time.Now(); now.UnixNano() >= t.next.Load() && t.mu.TryLock() {
		t.reloadChangedFiles()
		t.next.Store(now.Add(t.every).UnixNano())
		t.mu.Unlock()
	}
	return t.current.Load().RoundTrip(r)
}

// reloadChangedFiles replaces the transport if the files have changed. The caller
// holds mu.
func (t *reloadingTransport) reloadChangedFiles() {
	now, err := t.files.snapshot()
	if err == nil {
		if now.equal(t.seen) {
			t.problem = ""
			return
		}
		var trust *tls.Config
		if trust, err = t.files.load(t.insecure, t.log); err == nil {
			old := t.current.Swap(t.build(trust))
			t.seen, t.problem = now, ""
			old.CloseIdleConnections()
			t.log.Info().Msg("loaded the changed certificates for the manager")
			return
		}
	}
	// The files may be half written. The next check tries again.
	if err.Error() != t.problem {
		t.problem = err.Error()
		t.log.Warn().Err(err).Msg("cannot load the changed certificates for the manager, using the previous ones")
	}
}

// CloseIdleConnections implements the optional method that http.Client calls.
func (t *reloadingTransport) CloseIdleConnections() { t.current.Load().CloseIdleConnections() }
