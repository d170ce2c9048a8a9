package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// callTimeout limits one call to the API server.
	callTimeout = time.Minute
	// firstPause and longestPause are the means of the first and of the longest pause
	// between two attempts.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// callAPI calls f, which sends a request to the API server. It repeats f for up to
// Config.ReconnectTimeout while the API server is down or overloaded, so f must be
// idempotent. callAPI passes each such error to onError, unless onError is nil.
//
// The end of ctx does not cancel a request: otherwise its effect would be unknown.
func (d *Driver) callAPI(ctx context.Context, onError func(error), f func(context.Context) error) error {
	end := time.Now().Add(d.cfg.ReconnectTimeout)
	// The pauses are random: many transactions must not return to the server at once.
	pauses := backoff.ExponentialBackOff{
		InitialInterval: firstPause, MaxInterval: longestPause, Multiplier: 2, RandomizationFactor: backoff.DefaultRandomizationFactor,
	}
	for {
		calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := f(calling)
		cancel()
		if err == nil || !isTemporary(err) || time.Now().After(end) {
			return err
		}
		if onError != nil {
			onError(err)
		}
		timer := time.NewTimer(pauses.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", stopped(ctx), err)
		case <-d.alive.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", errClosed, err)
		}
	}
}

// isTemporary reports whether the error of a call is temporary: an error of the API server,
// or of the connection to it. A conflict is temporary too: another client changed the same
// object, possibly the quota.
func isTemporary(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusConflict && !apierrors.IsAlreadyExists(err) || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EPIPE)
}
