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

// backOff waits longer each time, by chance not at the same time as others.
type backOff struct{ d time.Duration }

// wait returns false when ctx ended or stop was closed first.
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

// retry asks until there is an answer or ctx ends.
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

// unavailable is what a caller hears whose ctx ended. Trouble is why the log does
// not answer, nil if nothing is known.
func unavailable(ctx context.Context, trouble error) error {
	if trouble == nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w (%w)", ErrUnavailable, context.Cause(ctx), trouble)
}

// asUnavailable says that a command or a question failed, for any reason that is
// the log's.
func asUnavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
