package logger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// openAttempts is the number of attempts to open the stream. Lines are sent also
	// if all of them fail.
	openAttempts = 3
	// maxRefusals is the number of consecutive batches that the service may refuse,
	// and the number of consecutive times that it may lose the stream, before the
	// sender gives up the live stream.
	maxRefusals = 3
)

var errRefused = errors.New("the log service refused the live stream")

// sender is the state of the goroutine that sends lines. Close reads it after the
// goroutine has ended.
type sender struct {
	sent      int64 // offset in the spool after the last sent or refused line
	next      int64 // position after the last line that the service has
	batch     int   // maximum size of a batch in bytes
	buf       sendBuffer
	refusals  int   // consecutive
	resumes   int   // consecutive
	gaps      bool  // the service refused lines
	delivered tally // lines that the service accepted
	liveErr   error // of the latest failed request
	oneCall   bool  // the service is known to complete a log with its last lines
	completed bool  // the service has completed the log
}

// sendLines runs in a goroutine of the stream. It sends lines until ctx ends, the
// service has refused too often, or Close has begun and all lines are sent. If the service
// can complete the log with its last lines, that saves the upload and the close.
func (s *Stream) sendLines(ctx context.Context) {
	defer close(s.done)
	if !s.cfg.SkipOpeningStream && s.next == 0 && !s.endsSoon(ctx) { // an earlier attempt may have opened it
		s.openLive(ctx)
	}
	for s.waitForLines(ctx) {
		list, off, err := s.spool.read(s.buf.begin(), s.sent, s.batch)
		if err != nil {
			s.liveErr = err
			return
		}
		s.sent = off
		last := s.mayComplete() && off+int64(len(list))-1 == s.spool.size()
		if len(list) == 1 && !last {
			continue
		}
		b := s.buf.end(list)
		if err := s.putBatch(ctx, b, last); err == nil {
			s.recordDelivery(b)
			if last {
				s.completed = s.api.completion == "true"
				return
			}
		} else if !s.handleRefusal(ctx, b, err) {
			return
		}
	}
}

// recordDelivery records that the service accepted a batch.
func (s *Stream) recordDelivery(b batch) {
	s.refusals, s.resumes = 0, 0
	s.sent += b.Bytes
	s.delivered.Lines += b.Lines
	s.delivered.Bytes += b.Bytes
	s.next = max(s.next, b.next)
	if !s.gaps {
		s.spool.ack(s.sent)
	}
}

// handleRefusal decides how to continue after the service did not accept a batch.
// It returns false to give up the live stream.
func (s *Stream) handleRefusal(ctx context.Context, b batch, err error) bool {
	s.liveErr = err
	var e *statusError
	switch {
	case retryable(err):
		return false // ctx has ended: retries have no other end
	case !errors.As(err, &e):
	case e.status == http.StatusRequestEntityTooLarge && b.Lines > 1:
		s.batch = int(b.Bytes / 2)
		return true
	case e.status == http.StatusConflict && e.next >= 0 && e.next < s.next && s.resumes < maxRefusals:
		s.resumes++
		return s.rewind(e.next)
	case e.status == http.StatusNotFound && s.resumes < maxRefusals:
		// The service has lost the stream and its lines.
		s.resumes++
		s.openLive(ctx)
		return s.rewind(0)
	}
	if s.refusals++; s.refusals >= maxRefusals {
		s.liveErr = fmt.Errorf("%w: %w", errRefused, err)
		return false
	}
	s.sent += b.Bytes
	s.gaps = true // the spool must keep the following lines for the archive
	return true
}

// rewind continues with the line at position next, or with the first line after it
// that the spool still has. The service has lost the lines from there on.
func (s *Stream) rewind(next int64) bool {
	s.spool.ack(0)    // the spool must keep all lines during the search
	var missing tally // lines that the service has lost
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
			missing.Lines = posOf(lines) - next // neither the service nor the spool has these
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
				missing.Lines++
				missing.Bytes += int64(len(line))
			}
			at += int64(len(line))
		}
	}
	if to >= 0 {
		s.sent = to
	}
	s.next = next
	s.delivered.Lines = max(0, s.delivered.Lines-missing.Lines)
	s.delivered.Bytes = max(0, s.delivered.Bytes-missing.Bytes)
	if !s.gaps {
		s.spool.ack(s.sent)
	}
	return true
}

// waitForLines waits until there are lines to send and FlushInterval has passed. When no
// more lines follow, it returns true if the service can complete the log, and false
// otherwise.
func (s *Stream) waitForLines(ctx context.Context) bool {
	for {
		backlog := s.spool.size() - s.sent
		select {
		case <-ctx.Done():
			return false
		case <-s.closing:
			return s.spool.size() > s.sent || s.mayComplete() && s.api.completion == "false"
		default:
		}
		if backlog >= maxBatch {
			return true
		}
		if backlog > 0 {
			// Lines that arrive in the meantime join this batch.
			s.waitFlushInterval(ctx)
			return ctx.Err() == nil
		}
		select {
		case <-s.wake:
		case <-s.closing:
		case <-ctx.Done():
		}
	}
}

// mayComplete reports whether the service may complete the log when it has the last lines: no
// lines follow, and its stream has the content that this stream would upload.
func (s *Stream) mayComplete() bool {
	select {
	case <-s.closing:
		return s.archives() && !s.gaps
	default:
		return false
	}
}

// endsSoon waits for FlushInterval if the service needs no call before the last lines. It
// reports whether the whole log fits into that call.
func (s *Stream) endsSoon(ctx context.Context) bool {
	if !s.oneCall || s.cfg.SkipClosingStream {
		return false
	}
	s.waitFlushInterval(ctx)
	size := s.spool.size()
	return s.mayComplete() && size > 0 && size <= int64(s.batch)
}

// openLive opens the live stream. If that fails, the service may still accept lines.
func (s *Stream) openLive(ctx context.Context) {
	err := retry(ctx, openAttempts, func() error { return s.attempt(ctx, s.api.openStream) })
	if err != nil {
		s.liveErr = err
	}
}

// putBatch sends a batch until the service accepts or refuses it, or ctx ends.
func (s *Stream) putBatch(ctx context.Context, b batch, last bool) error {
	return retry(ctx, 0, func() error {
		return s.attempt(ctx, func(ctx context.Context) error { return s.api.put(ctx, s.next, s.buf.body(b.list), last) })
	})
}

// attempt makes one request, limited by RequestTimeout.
func (s *Stream) attempt(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	return s.keepOnFailure(func() error { return call(ctx) })
}

// waitFlushInterval waits for FlushInterval, or until Close begins or ctx ends.
func (s *Stream) waitFlushInterval(ctx context.Context) {
	t := time.NewTimer(s.cfg.FlushInterval)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closing:
	case <-ctx.Done():
	}
}
