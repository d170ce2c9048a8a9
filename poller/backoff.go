package poller

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Bounds of the pauses between failed calls.
const (
	shortestPause = 200 * time.Millisecond
	longestPause  = 30 * time.Second
)

// backOff is the pauses between failed calls.
type backOff struct{ *backoff.ExponentialBackOff }

// newBackOff returns pauses that double from first to longest. Each pause is
// random, between half of its bound and the bound: delegates that lost their
// manager at the same time do not return at the same time.
func newBackOff(first, longest time.Duration) backOff {
	return backOff{&backoff.ExponentialBackOff{
		InitialInterval: first / 4 * 3, MaxInterval: longest / 4 * 3, RandomizationFactor: 1.0 / 3, Multiplier: 2,
	}}
}

// pause waits until the next attempt or the end of ctx. It reports whether ctx
// has not ended.
func (b backOff) pause(ctx context.Context) bool { return pause(ctx, b.NextBackOff(), nil) }

// pause waits for d, for wake or for the end of ctx. It reports whether ctx has not
// ended.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// jitter returns a random duration that differs from d by at most a fifth.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*(d/5)+1)
}
