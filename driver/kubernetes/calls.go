package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// callTimeout bounds one call to the API server.
	callTimeout = time.Minute
	// firstPause and longestPause are between two attempts.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// ask calls the API server by f, again while that is away or has no time for it, for as
// long as a pod is tried to be reached. What f asks for must not mind that. tell, which
// may be nil, is given what is in the way.
//
// A call is not bounded by ctx: of a request that is cut off nobody knows what it did.
func (d *Driver) ask(ctx context.Context, tell func(error), f func(context.Context) error) error {
	end := time.Now().Add(d.cfg.ReconnectTimeout)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		err := f(calling)
		cancel()
		if err == nil || !mayPassNow(err) || time.Now().After(end) {
			return err
		}
		if tell != nil {
			tell(err)
		}
		timer := time.NewTimer(pause)
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

// mayPassNow reports whether a call failed for what the API server, or the way to it, may
// get over by itself. A conflict is with somebody who changes the same object, which may be
// the quota's.
func mayPassNow(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusConflict && !apierrors.IsAlreadyExists(err) || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) ||
		utilnet.IsHTTP2ConnectionLost(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EPIPE)
}
