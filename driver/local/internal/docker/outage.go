package docker

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

const (
	// pingTimeout is how long the engine may take to answer before it counts as away.
	pingTimeout = 5 * time.Second
	// pingPause is the time between two checks whether the engine is back.
	pingPause = 100 * time.Millisecond
	// maxFailures is how often a call is repeated that failed inside the engine. The engine may be
	// shutting down, or the kernel may still use a mount.
	maxFailures = 4
)

// isAway reports whether err means that the connection to the engine failed or broke. A missing
// permission is not an outage: it does not go away.
func isAway(err error) bool {
	return client.IsErrConnectionFailed(err) && !errors.Is(err, fs.ErrPermission)
}

// outage limits how long several calls together wait for the engine. The time starts with the first
// call that does not reach it. It is safe for concurrent use.
type outage struct {
	limit  time.Duration
	notice func() // called once, when the wait begins; may be nil

	begin sync.Once
	until time.Time // set by begin
}

// await waits for the engine. It returns false when the time is over.
func (o *outage) await(ctx context.Context, cli client.APIClient) bool {
	o.begin.Do(func() {
		o.until = time.Now().Add(o.limit)
		if o.notice != nil && o.limit > 0 {
			o.notice()
		}
	})
	ctx, cancel := context.WithDeadline(ctx, o.until)
	defer cancel()
	ticker := time.NewTicker(pingPause)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if pings(ctx, cli) {
			return true
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return false
}

func pings(ctx context.Context, cli client.APIClient) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := cli.Ping(ctx)
	return err == nil
}

// listens reports whether the engine accepts new connections.
func listens(ctx context.Context, cli client.APIClient) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	conn, err := cli.Dialer()(ctx)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// insist repeats an idempotent call until it succeeds, fails permanently, or the outage takes too
// long.
func (o *outage) insist(ctx context.Context, cli client.APIClient, call func(context.Context) error) error {
	for failures := 0; ; {
		err := once(ctx, call)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case isAway(err) || errors.Is(err, context.DeadlineExceeded):
			if !o.await(ctx, cli) {
				return err
			}
			// The engine is back. Limit the attempts all the same: the call may be what stops the
			// engine.
			failures++
		case errdefs.IsInternal(err) || errdefs.IsUnavailable(err):
			failures++
			select {
			case <-time.After(pingPause << failures):
			case <-ctx.Done():
				return err
			}
		default:
			return err
		}
		if failures >= maxFailures {
			return err
		}
	}
}

// once makes one call, limited by engineTimeout.
func once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	return call(ctx)
}
