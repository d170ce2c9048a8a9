package client

import (
	"net/http"
	"net/url"
)

// LookAlways makes a client look at its certificates' files at every request.
func LookAlways() Option { return func(c *config) { c.checkEvery = 0 } }

// ProxyFor is the proxy that a configuration gives for a request.
func ProxyFor(p ProxyConfig, r *http.Request) (*url.URL, error) {
	f, err := p.function()
	if err != nil {
		return nil, err
	}
	return f(r)
}
