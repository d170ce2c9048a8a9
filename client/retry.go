package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// checkRetry decides whether another attempt follows (rule C2), and records the
// failure of this attempt. No other code decides that. retryablehttp calls it a
// second time for an answer that it passed to handleAnswer. A call that succeeded
// stays successful even if its context has ended: otherwise an acquired task would
// be lost.
func (c *call) checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && isSuccess(resp.StatusCode) {
		return false, nil
	}
	var own *Error
	retry := true
	switch {
	case errors.As(err, &own): // from handleAnswer
		c.last = own
		retry = isSuccess(own.Status) && c.shouldReadAgain(own)
	case err != nil:
		c.last = c.newError(0, unwrapURLError(err))
	default:
		c.last = c.statusError(ctx, resp)
		retry = c.last.isRetryable()
	}
	return retry && ctx.Err() == nil, nil
}

// shouldReadAgain reports whether to retry a 2xx answer whose body was invalid. An
// incomplete body may arrive complete the next time. A complete body will be the
// same again, except that a manager may grant a task twice for this case.
func (c *call) shouldReadAgain(e *Error) bool {
	switch {
	case errors.Is(e, ErrTooLarge):
		return false
	case c.grantsTask:
		return true
	default:
		return e.Message == "" // reading the body failed, and not decoding it
	}
}

// nextPause returns the pause before the next attempt: the back-off, or the
// Retry-After of the manager if that is longer.
func (c *call) nextPause(_, _ time.Duration, attempt int, _ *http.Response) time.Duration {
	if c.pauses == nil {
		c.pauses = newBackOff(c.h.retries)
	}
	d := c.pauses.NextBackOff()
	if c.last != nil {
		d = max(d, min(c.last.RetryAfter, c.h.retries.MaxRetryAfter))
	}
	event := c.h.log.Debug().Str("method", c.method).Str("path", c.path).Int("attempt", attempt+1).Dur("pause", d)
	if c.last != nil {
		event = event.Int("status", c.last.Status).AnErr("cause", c.last.Err)
	}
	event.Msg("the call to the manager failed, retrying")
	return d
}

// newBackOff returns a back-off whose pauses double from MinWait to MaxWait. Each
// pause is between a half and the whole of that.
func newBackOff(r Retries) *backoff.ExponentialBackOff {
	// The library randomises around the middle: 3/4 of the pause, plus or minus 1/4.
	return &backoff.ExponentialBackOff{
		InitialInterval: r.MinWait / 4 * 3, MaxInterval: r.MaxWait / 4 * 3, Multiplier: 2, RandomizationFactor: 1.0 / 3,
	}
}
