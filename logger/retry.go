package logger

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// maxRetryAfter limits the pause that a Retry-After header can ask for.
const maxRetryAfter = 30 * time.Second

// retry calls call until it succeeds, fails permanently, has failed attempts times,
// or ctx ends. Zero attempts means no limit. retry returns the error of the latest
// call that the end of ctx did not interrupt.
func retry(ctx context.Context, attempts uint, call func() error) error {
	var last error
	pauses := &servicePauses{BackOff: newBackOff(), last: &last}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := call()
		switch {
		case err == nil:
			return struct{}{}, nil
		case !retryable(err):
			last = err
			return struct{}{}, backoff.Permanent(err)
		case ctx.Err() == nil || last == nil:
			last = err
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(attempts), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return last
	}
	return nil
}

// newBackOff returns a back-off whose pauses double from 50 ms to 2 s. Each pause is
// between a half and the whole of that, so that the steps of a host do not retry at
// the same time.
func newBackOff() backoff.BackOff {
	// The library randomises around the middle: 3/4 of the pause, plus or minus 1/4.
	return &backoff.ExponentialBackOff{
		InitialInterval: 50 * time.Millisecond / 4 * 3, MaxInterval: 2 * time.Second / 4 * 3,
		Multiplier: 2, RandomizationFactor: 1.0 / 3,
	}
}

// servicePauses extends the pauses of a back-off to the Retry-After of the latest
// error.
type servicePauses struct {
	backoff.BackOff
	last *error
}

// NextBackOff implements [backoff.BackOff].
func (p *servicePauses) NextBackOff() time.Duration {
	d := p.BackOff.NextBackOff()
	if e := (*statusError)(nil); errors.As(*p.last, &e) {
		d = max(d, min(e.retryAfter, maxRetryAfter))
	}
	return d
}
