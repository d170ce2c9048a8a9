package logger

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"
)

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
	// openAttempts is how often opening is tried before lines are sent without.
	openAttempts = 3
	// maxRefusals is how many batches in a row a service may refuse for good
	// before the live stream is given up.
	maxRefusals = 3
)

var errRefused = errors.New("the log service refused the live stream")

func newWriterID() string { return rand.Text() }

// send is the stream's goroutine. It sends lines until ctx ends, or until Close
// has begun and everything is sent, or the service has refused too often.
func (s *Stream) send(ctx context.Context) {
	defer close(s.done)
	if !s.cfg.SkipOpeningStream {
		s.open(ctx)
	}
	refusals := 0
	for s.more(ctx) {
		lines, err := s.spool.read(s.sent)
		if err != nil {
			s.liveErr = err
			return
		}
		switch err := s.put(ctx, lines); {
		case err == nil:
			refusals = 0
			s.delivered.lines += int64(bytes.Count(lines, []byte("\n")))
			s.delivered.bytes += int64(len(lines))
		case retryable(err):
			s.liveErr = err
			return // only the end of ctx ends the attempts
		default:
			s.liveErr = err
			if refusals++; refusals == maxRefusals {
				s.liveErr = fmt.Errorf("%w: %w", errRefused, err)
				return
			}
		}
		s.sent += int64(len(lines))
		if !s.archives() {
			s.spool.forget(s.sent)
		}
	}
}

// more waits until there are lines to send and they had time to gather. It is
// false at the end.
func (s *Stream) more(ctx context.Context) bool {
	for {
		backlog := s.spool.end() - s.sent
		select {
		case <-ctx.Done():
			return false
		case <-s.closing:
			return s.spool.end() > s.sent
		default:
		}
		if backlog >= maxBatch {
			return true
		}
		if backlog > 0 {
			// The lines that gather meanwhile go with this batch.
			s.pause(ctx, s.cfg.FlushInterval)
			return s.spool.end() > s.sent && ctx.Err() == nil
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
		if !retryable(err) || !sleep(ctx, nil, jitter(try)) {
			return
		}
	}
}

// put sends a batch until it arrives, is refused, or ctx ends.
func (s *Stream) put(ctx context.Context, lines []byte) error {
	return persist(ctx, func() error {
		return s.once(ctx, func(ctx context.Context) error { return s.api.put(ctx, lines) })
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
		if !sleep(ctx, nil, jitter(try)) {
			return last
		}
	}
}

// pause waits, but no longer than until Close begins.
func (s *Stream) pause(ctx context.Context, d time.Duration) {
	sleep(ctx, s.closing, d)
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
