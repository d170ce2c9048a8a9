package client_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/delegate-io/dlite/client"
)

// quiet is a log for servers whose complaints are part of the test.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

func countNew(n *atomic.Int64, next func(net.Conn, http.ConnState)) func(net.Conn, http.ConnState) {
	return func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.Add(1)
		}
		if next != nil {
			next(c, s)
		}
	}
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isUnauthorized(err error) bool { return errors.Is(err, client.ErrUnauthorized) }
