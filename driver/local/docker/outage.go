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
	// pingTimeout is after how long an engine that says nothing counts as away.
	pingTimeout = 5 * time.Second
	// pingPause is the time between two looks for an engine that is away.
	pingPause = 100 * time.Millisecond
	// stubborn is how often a call is repeated that an engine which is there
	// failed with an error of its own: it may be shutting down, or the kernel may
	// not have let go of a mount yet.
	stubborn = 4
)

// isAway reports whether err means that the engine could not be talked to, or
// stopped talking in the middle of a call. That a user may not talk to it does
// not change by waiting.
func isAway(err error) bool {
	return client.IsErrConnectionFailed(err) && !errors.Is(err, fs.ErrPermission)
}

// outage bounds how long is waited for an engine, in several calls together:
// the time runs from the first one that finds it away.
// Safe for concurrent use.
type outage struct {
	limit  time.Duration
	notice func() // called once, when the waiting begins; may be nil

	begin sync.Once
	until time.Time // set by begin
}

// await returns true when the engine answers again, and false when it is not
// worth waiting for any more.
func (o *outage) await(ctx context.Context, cli client.APIClient) bool {
	o.begin.Do(func() {
		o.until = time.Now().Add(o.limit)
		if o.notice != nil && o.limit > 0 {
			o.notice()
		}
	})
	ctx, cancel := context.WithDeadline(ctx, o.until)
	defer cancel()
	look := time.NewTicker(pingPause)
	defer look.Stop()
	for ctx.Err() == nil {
		if pings(ctx, cli) {
			return true
		}
		select {
		case <-look.C:
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

// listens reports whether the engine takes new connections.
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

// insist repeats call, which must not mind that, until it succeeds, fails for a
// reason that will not go away, or the outage takes too long.
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
			// It answers, so whatever happens next is worth as many attempts as
			// what happens first, but not more: each may have brought it down.
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
		if failures >= stubborn {
			return err
		}
	}
}

// once makes one call, which has engineTimeout.
func once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	return call(ctx)
}
