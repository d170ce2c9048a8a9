package logger

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"time"
)

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
	// maxRetryAfter bounds how long a service can have a stream wait.
	maxRetryAfter = 30 * time.Second
	// openAttempts is how often opening is tried before lines are sent without.
	openAttempts = 3
	// maxRefusals is how many batches in a row a service may refuse for good
	// before the live stream is given up, and how often in a row it may have
	// lost the stream.
	maxRefusals = 3
)

var errRefused = errors.New("the log service refused the live stream")

func newWriterID() string { return rand.Text() }

// sender is the state of a stream's goroutine; Close reads it when that is done.
type sender struct {
	sent      int64 // offset in the spool up to which lines were sent or refused
	next      int64 // the pos behind the last line that the service has
	batch     int   // how many bytes to send at once
	buf       sendBuffer
	refusals  int   // in a row
	resumes   int   // in a row
	gaps      bool  // lines were refused
	delivered tally // lines that the service took
	liveErr   error // why a live request failed for good
}

// send is the stream's goroutine. It sends lines until ctx ends, or until Close
// has begun and everything is sent, or the service has refused too often.
func (s *Stream) send(ctx context.Context) {
	defer close(s.done)
	if !s.cfg.SkipOpeningStream {
		s.open(ctx)
	}
	for s.more(ctx) {
		list, off, err := s.spool.read(s.buf.begin(), s.sent, s.batch)
		if err != nil {
			s.liveErr = err
			return
		}
		s.sent = off
		if len(list) == 1 {
			continue
		}
		b := s.buf.end(list)
		if err := s.put(ctx, b); err == nil {
			s.took(b)
		} else if !s.regroup(ctx, b, err) {
			return
		}
	}
}

// took notes that the service has lines.
func (s *Stream) took(b batch) {
	s.refusals, s.resumes = 0, 0
	s.sent += b.bytes
	s.delivered.lines += b.lines
	s.delivered.bytes += b.bytes
	s.next = b.next
	if !s.gaps {
		s.spool.ack(s.sent)
	}
}

// regroup decides how to go on after lines were not taken. It is false when the
// live stream is to be given up.
func (s *Stream) regroup(ctx context.Context, b batch, err error) bool {
	s.liveErr = err
	var e *statusError
	switch {
	case retryable(err):
		return false // only the end of ctx ends the attempts
	case !errors.As(err, &e):
	case e.status == http.StatusRequestEntityTooLarge && b.lines > 1:
		s.batch = int(b.bytes / 2)
		return true
	case e.status == http.StatusConflict && e.next >= 0 && e.next < s.next && s.resumes < maxRefusals:
		s.resumes++
		return s.rewind(e.next)
	case e.status == http.StatusNotFound && s.resumes < maxRefusals:
		// The service has lost the stream, and what was in it.
		s.resumes++
		s.open(ctx)
		return s.rewind(0)
	}
	if s.refusals++; s.refusals >= maxRefusals {
		s.liveErr = fmt.Errorf("%w: %w", errRefused, err)
		return false
	}
	s.sent += b.bytes
	s.gaps = true // what comes behind them may not be given up: the archive needs it
	return true
}

// rewind goes back to the first line whose pos is not below next, as far as
// that is kept: the service does not have it any more.
func (s *Stream) rewind(next int64) bool {
	s.spool.ack(0) // nothing is given up while we look
	var gone tally // what the service no longer has
	to := int64(-1)
	var lines []byte
	for at := int64(0); at < s.sent; {
		var off int64
		var err error
		lines, off, err = s.spool.read(lines[:0], at, maxBatch)
		if err != nil {
			s.liveErr = err
			return false
		}
		if at == 0 && off > 0 && posOf(lines) > next {
			gone.lines = posOf(lines) - next // nobody has those
		}
		at = off
		for line := range bytes.Lines(lines) {
			if at >= s.sent {
				break
			}
			if posOf(line) >= next {
				if to < 0 {
					to = at
				}
				gone.lines++
				gone.bytes += int64(len(line))
			}
			at += int64(len(line))
		}
	}
	if to >= 0 {
		s.sent = to
	}
	s.next = next
	s.delivered.lines = max(0, s.delivered.lines-gone.lines)
	s.delivered.bytes = max(0, s.delivered.bytes-gone.bytes)
	if !s.gaps {
		s.spool.ack(s.sent)
	}
	return true
}

// more waits until there are lines to send and they had time to gather. It is
// false at the end.
func (s *Stream) more(ctx context.Context) bool {
	for {
		backlog := s.spool.size() - s.sent
		select {
		case <-ctx.Done():
			return false
		case <-s.closing:
			return s.spool.size() > s.sent
		default:
		}
		if backlog >= maxBatch {
			return true
		}
		if backlog > 0 {
			// The lines that gather meanwhile go with this batch.
			s.pause(ctx, s.cfg.FlushInterval)
			return ctx.Err() == nil
		}
		select {
		case <-s.wake:
		case <-s.closing:
		case <-ctx.Done():
		}
	}
}

func (s *Stream) open(ctx context.Context) {
	for try := range openAttempts {
		err := s.once(ctx, s.api.openStream)
		if err == nil {
			return
		}
		s.liveErr = err
		if !retryable(err) || !sleep(ctx, nil, delay(try, err)) {
			return
		}
	}
}

// put sends a batch until it arrives, is refused, or ctx ends.
func (s *Stream) put(ctx context.Context, b batch) error {
	return persist(ctx, func() error {
		return s.once(ctx, func(ctx context.Context) error { return s.api.put(ctx, s.next, s.buf.body(b.list)) })
	})
}

// once makes one live request.
func (s *Stream) once(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	return call(ctx)
}

// persist repeats call until it succeeds, fails for good, or ctx ends. The error
// is then that of the last attempt that ctx did not end.
func persist(ctx context.Context, call func() error) error {
	var last error
	for try := 0; ; try++ {
		err := call()
		if err == nil || !retryable(err) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if !sleep(ctx, nil, delay(try, err)) {
			return last
		}
	}
}

// pause waits, but no longer than until Close begins.
func (s *Stream) pause(ctx context.Context, d time.Duration) {
	sleep(ctx, s.closing, d)
}

// delay is how long to wait after an error: what the service asked for, within
// reason, and no less than the back-off.
func delay(try int, err error) time.Duration {
	d := jitter(try)
	if e := (*statusError)(nil); errors.As(err, &e) {
		d = max(d, min(e.retryAfter, maxRetryAfter))
	}
	return d
}

// jitter is a span between half and all of the exponential back-off, so that
// the steps of a host do not come back all at once.
func jitter(try int) time.Duration {
	d := min(firstBackoff<<min(try, 16), maxBackoff)
	return d/2 + mathrand.N(d/2)
}

func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
