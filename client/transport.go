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

// newTransport is what the calls travel over when the caller brings nothing.
func newTransport(cfg *config) (http.RoundTripper, error) {
	proxy := http.ProxyFromEnvironment
	if cfg.proxy != nil {
		var err error
		if proxy, err = cfg.proxy.function(); err != nil {
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
			ForceAttemptHTTP2:   true, // a TLS configuration of one's own turns it off
			// All calls go to one host, many at a time: with the default of two
			// most of them would dial anew.
			MaxIdleConnsPerHost:   256,
			IdleConnTimeout:       60 * time.Second,
			ExpectContinueTimeout: time.Second,
			// A peer that is gone without a word would otherwise hold every
			// call of an HTTP/2 connection until its time-out, again and again.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		}
	}
	files := trustFiles{caDir: cfg.caDir, certFile: cfg.certFile, keyFile: cfg.keyFile}
	seen, err := files.look()
	if err != nil {
		return nil, err
	}
	trust, err := files.load(cfg.insecure, cfg.log)
	if err != nil {
		return nil, err
	}
	if !files.any() {
		return build(trust), nil
	}
	t := &reloading{files: files, insecure: cfg.insecure, build: build, log: cfg.log, every: cfg.checkEvery, seen: seen}
	t.current.Store(build(trust))
	t.next.Store(time.Now().Add(t.every).UnixNano())
	return t, nil
}

// reloading is a transport whose certificates follow their files (SPEC C5). It
// looks at the files when a request is made, at most once in a while, and puts a
// new http.Transport in place of the old one when they have changed; so new
// connections use the new certificates and old ones end when they are idle. It
// needs no goroutine.
type reloading struct {
	files    trustFiles
	insecure bool
	build    func(*tls.Config) *http.Transport
	log      zerolog.Logger
	every    time.Duration

	current atomic.Pointer[http.Transport]
	next    atomic.Int64 // when to look again, Unix nanoseconds

	mu      sync.Mutex // held by the one request that looks; the others go on
	seen    snapshot   // guarded by mu: the files of current
	problem string     // guarded by mu: what was last warned of
}

// RoundTrip makes a request with the certificates that are in force.
func (t *reloading) RoundTrip(r *http.Request) (*http.Response, error) {
	if now := time.Now(); now.UnixNano() >= t.next.Load() && t.mu.TryLock() {
		t.refresh()
		t.next.Store(now.Add(t.every).UnixNano())
		t.mu.Unlock()
	}
	return t.current.Load().RoundTrip(r)
}

// refresh takes the files' present content. The caller holds mu.
func (t *reloading) refresh() {
	now, err := t.files.look()
	if err == nil {
		if now.same(t.seen) {
			t.problem = ""
			return
		}
		var trust *tls.Config
		if trust, err = t.files.load(t.insecure, t.log); err == nil {
			old := t.current.Swap(t.build(trust))
			t.seen, t.problem = now, ""
			old.CloseIdleConnections()
			t.log.Info().Msg("the certificates for the manager have changed and are in force")
			return
		}
	}
	// Perhaps half a change: the old ones stay, and the next look tries again.
	if err.Error() != t.problem {
		t.problem = err.Error()
		t.log.Warn().Err(err).Msg("the certificates for the manager have changed but cannot be used, the old ones stay in force")
	}
}

// CloseIdleConnections is what http.Client looks for.
func (t *reloading) CloseIdleConnections() { t.current.Load().CloseIdleConnections() }
