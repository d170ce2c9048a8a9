package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// attemptTimeout limits the time of every attempt, to the last byte of the body.
// The time-out of http.Client needs a goroutine per request for a custom
// transport.
//
// attemptTimeout has no CloseIdleConnections method: retryablehttp calls that
// method after every failed call, and all other executors would dial again.
type attemptTimeout struct {
	transport http.RoundTripper
	timeout   time.Duration
}

// RoundTrip makes one attempt.
func (b attemptTimeout) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), b.timeout)
	a := &attemptBody{caller: r, own: r.WithContext(ctx), cancel: cancel, timeout: b.timeout}
	resp, err := b.transport.RoundTrip(a.own)
	if err != nil {
		err = a.explain(err)
		cancel()
		return nil, err
	}
	a.body, resp.Body = resp.Body, a
	return resp, nil
}

// attemptBody is the body of an answer. Close ends the attempt.
type attemptBody struct {
	body        io.ReadCloser
	caller, own *http.Request // with the context of the call and of the attempt
	cancel      context.CancelFunc
	timeout     time.Duration
}

func (a *attemptBody) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.explain(err)
	}
	return n, err
}

func (a *attemptBody) Close() error {
	err := a.body.Close()
	a.cancel()
	return err
}

// explain replaces an error that the time-out of the attempt caused. Call it
// before the context of the attempt is cancelled.
func (a *attemptBody) explain(err error) error {
	if a.own.Context().Err() == nil || a.caller.Context().Err() != nil {
		return err
	}
	return fmt.Errorf("no complete answer within %s: %w", a.timeout, context.DeadlineExceeded)
}
