package poller

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bounds of the waits between calls that fail.
const (
	shortestBackoff = 200 * time.Millisecond
	longestBackoff  = 30 * time.Second
)

// backoff doubles from one wait to the next. Each wait is drawn from its upper
// half, so that delegates that lost their manager together do not come back
// together.
type backoff struct {
	next time.Duration
}

func newBackoff() *backoff { return &backoff{next: shortestBackoff} }

// sleep waits, no longer than ctx. It says whether ctx still goes on.
func (b *backoff) sleep(ctx context.Context) bool {
	d := b.next
	b.next = min(2*d, longestBackoff)
	return pause(ctx, d/2+rand.N(d/2+1), nil)
}

// pause waits for d, for wake, or for the end of ctx, of which it says whether
// it still goes on.
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

// jitter is d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*(d/5)+1)
}
