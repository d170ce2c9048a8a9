package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// bounded gives every attempt of a call its time-out, to the last byte of the
// body. http.Client has that too, but takes a goroutine per request for it when
// it does not know the transport.
//
// It also keeps http.Client from closing the transport's idle connections: the
// retrying library asks for that whenever a call fails, and then every other
// executor would have to dial anew.
type bounded struct {
	transport http.RoundTripper
	timeout   time.Duration
}

// RoundTrip makes one attempt.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), b.timeout)
	a := &attempt{caller: r, own: r.WithContext(ctx), cancel: cancel, timeout: b.timeout}
	resp, err := b.transport.RoundTrip(a.own)
	if err != nil {
		err = a.explain(err)
		cancel()
		return nil, err
	}
	a.body, resp.Body = resp.Body, a
	return resp, nil
}

// attempt is an answer's body; closing it ends the attempt.
type attempt struct {
	body        io.ReadCloser
	caller, own *http.Request // with the caller's context and the attempt's
	cancel      context.CancelFunc
	timeout     time.Duration
}

func (a *attempt) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.explain(err)
	}
	return n, err
}

func (a *attempt) Close() error {
	err := a.body.Close()
	a.cancel()
	return err
}

// explain says so when it was the attempt's time-out, and not the caller, that
// caused an error. It is called before the attempt's context is cancelled.
func (a *attempt) explain(err error) error {
	if a.own.Context().Err() == nil || a.caller.Context().Err() != nil {
		return err
	}
	return fmt.Errorf("no complete answer within %s: %w", a.timeout, context.DeadlineExceeded)
}
