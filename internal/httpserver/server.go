// Package httpserver makes HTTP servers whose time-outs fit calls that wait and answers
// that stream, and bounds the resources of one client.
//
//	server := httpserver.New(handler)
//	go server.Serve(httpserver.LimitConnections(10_000, 2_500)(listener))
//
// Start reading at server.go for the servers, guard.go for the deadlines of one request,
// limit.go for the limits, and browser.go for requests of web pages.
package httpserver

import (
	"net/http"
	"time"
)

const (
	// headerTimeout bounds the time in which a client must send the header of a request,
	// and a TLS handshake.
	headerTimeout = 10 * time.Second
	// idleTimeout is the time after which the server closes a connection without a
	// request. The clients of this project keep idle connections for 90 s.
	idleTimeout = 2 * time.Minute
	// maxHeader bounds the header of a request, in bytes.
	maxHeader = 64 << 10
)

// New returns a server for a handler. It disconnects a client that sends or accepts data
// too slowly, see [Guard]. A handler may take any time before it answers, and between
// the parts of its answer.
func New(h http.Handler) *http.Server {
	return &http.Server{
		Handler: Guard(h), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		WriteTimeout: Patience, // Guard replaces it; the server restores it for each request
	}
}
