package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// again decides whether an attempt is followed by another (SPEC C2). It is the
// one place that does, and it keeps why the attempt failed. The library asks a
// second time about an answer that it gave to call.answer. A call that has
// succeeded stays a success when its context has ended meanwhile; otherwise a
// task that was acquired would be lost.
func (c *call) again(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if err == nil && good(resp.StatusCode) {
		return false, nil
	}
	var own *Error
	retry := true
	switch {
	case errors.As(err, &own): // from call.answer
		c.last = own
		retry = good(own.Status) && c.worthReading(own)
	case err != nil:
		c.last = c.fail(0, cause(err))
	default:
		c.last = c.refused(ctx, resp)
		retry = c.last.retryable()
	}
	return retry && ctx.Err() == nil, nil
}

// worthReading tells whether a good answer that could not be read is asked for
// again. What broke off may come whole; what came whole will come again, save
// that a manager hands a task to the same delegate twice for just this case.
func (c *call) worthReading(e *Error) bool {
	switch {
	case errors.Is(e, ErrTooLarge):
		return false
	case c.handsOut:
		return true
	default:
		return e.Message == "" // no body: reading it failed, not decoding
	}
}

// pause is the time before the next attempt: exponential with jitter, or what
// the manager asked for when that is longer.
func (c *call) pause(_, _ time.Duration, attempt int, _ *http.Response) time.Duration {
	r := c.h.retries
	d := backoff(r.MinWait, r.MaxWait, attempt)
	if c.last != nil {
		d = max(d, min(c.last.RetryAfter, r.MaxRetryAfter))
	}
	event := c.h.log.Debug().Str("method", c.method).Str("path", c.path).Int("attempt", attempt+1).Dur("pause", d)
	if c.last != nil {
		event = event.Int("status", c.last.Status).AnErr("cause", c.last.Err)
	}
	event.Msg("the manager did not answer well, trying again")
	return d
}

// backoff is between a half and the whole of shortest*2^attempt, at most of
// longest.
func backoff(shortest, longest time.Duration, attempt int) time.Duration {
	d := longest
	if attempt < 62 && shortest <= longest>>attempt {
		d = shortest << attempt
	}
	return d - rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}

// retryAfter reads the header in both its forms, seconds and date; 0 when it
// says nothing that can be understood, or a time that has passed.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
