package client_test

import (
	"errors"
	"io"
	"log"
	"net/http"

	"github.com/delegate-io/dlite/client"
)

// quiet returns a log for servers whose errors are expected.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isUnauthorized(err error) bool { return errors.Is(err, client.ErrUnauthorized) }
