package client

import (
	"net/http"
	"net/url"
	"time"
)

// LookAlways checks the certificate files at every request.
func LookAlways() Option { return func(c *config) { c.checkEvery = 0 } }

// WithMaxBody limits requests and answers, in bytes.
func WithMaxBody(n int64) Option { return func(c *config) { c.maxBody = n } }

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option { return func(c *config) { c.now = now } }

// ProxyFor returns the proxy that a configuration selects for a request.
func ProxyFor(p ProxyConfig, r *http.Request) (*url.URL, error) {
	f, err := p.proxyFunc()
	if err != nil {
		return nil, err
	}
	return f(r)
}
