package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	minBackOff = 10 * time.Millisecond
	maxBackOff = 2 * time.Second
)

// backOff waits longer each time, with random jitter.
type backOff struct{ d time.Duration }

// wait returns false if ctx or stop ended first.
func (b *backOff) wait(ctx context.Context, stop <-chan struct{}) bool {
	b.d = min(max(2*b.d, minBackOff), maxBackOff)
	t := time.NewTimer(b.d/2 + rand.N(b.d/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-t.C:
		return true
	}
}

// retry calls ask until it succeeds or fails with an error other than ErrRetry, or
// until ctx ends.
func retry[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	var b backOff
	for {
		answer, err := ask()
		if !errors.Is(err, ErrRetry) {
			return answer, err
		}
		if !b.wait(ctx, nil) {
			return answer, unavailable(ctx, err)
		}
	}
}

// unavailable returns the error for a caller whose ctx ended. trouble is the error of
// the log, or nil if it is unknown.
func unavailable(ctx context.Context, trouble error) error {
	if trouble == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w (%w)", ErrUnavailable, context.Cause(ctx), trouble)
}

// asUnavailable wraps an error of the log in ErrUnavailable.
func asUnavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
