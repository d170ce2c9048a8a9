package logger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// linkAttempts is the number of attempts to upload to a link. After that the log is
// archived through the service.
const linkAttempts = 3

// finishLive waits until the sender has sent the remaining lines. If the archive
// will contain all lines, the sender gets the smaller share of the time.
func (s *Stream) finishLive(ctx context.Context) {
	close(s.closing)
	share := 0.75
	if s.archives() {
		share = 0.25
	}
	ctx, cancel := withShare(ctx, share)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.stop()
	<-s.done
}

// ending is the result of a stream.
type ending struct {
	err     error
	lost    error // lines that the spool did not store; also in err
	arrived bool  // everything in the spool arrived
	retry   bool  // the rest may arrive later
}

// finish archives the log, closes the live stream, and counts the lost lines.
func (s *Stream) finish(ctx context.Context) ending {
	stored, lost, lostErr := s.spool.counts()
	missing := tally{stored.Lines - s.delivered.Lines, stored.Bytes - s.delivered.Bytes}
	// Lines that the spool removed are only in the live stream.
	snapshot := s.cfg.SkipOpeningStream || !s.spool.intact()

	var archiveErr, closeErr error
	if s.archives() && !s.completed {
		if archiveErr = s.archive(ctx); archiveErr == nil {
			missing = tally{}
		} else {
			// Archive the lines of the live stream.
			snapshot = true
		}
	}
	if !s.cfg.SkipClosingStream && !s.completed {
		closeErr = s.closeStream(ctx, snapshot)
	}
	if archiveErr != nil && closeErr != nil {
		missing = stored
	}
	e := ending{arrived: missing.Lines == 0 && closeErr == nil}
	e.retry = !e.arrived && (retryable(archiveErr) || retryable(closeErr) ||
		missing.Lines > 0 && archiveErr == nil && (s.liveErr == nil || retryable(s.liveErr)))
	if lost.Lines > 0 {
		e.lost = &LossError{Lines: lost.Lines, Bytes: lost.Bytes, Err: lostErr}
	}

	var errs []error
	if missing.Lines > 0 || lost.Lines > 0 {
		if missing.Lines > 0 {
			lostErr = errors.Join(lostErr, archiveErr, s.liveErr)
		}
		if lostErr == nil {
			lostErr = errors.New("the time to send the log was over")
		}
		errs = append(errs, &LossError{
			Lines: missing.Lines + lost.Lines, Bytes: missing.Bytes + lost.Bytes, Err: lostErr,
		})
	}
	if closeErr != nil {
		errs = append(errs, fmt.Errorf("closing the log stream: %w", closeErr))
	}
	e.err = errors.Join(errs...)
	return e
}

// archive uploads the whole log: to a link if the configuration allows it, and
// otherwise, or if the link fails, through the service. It leaves time for closing
// the stream.
func (s *Stream) archive(ctx context.Context) error {
	ctx, cancel := withShare(ctx, 0.9)
	defer cancel()
	var linkErr error
	if !s.cfg.IndirectUpload {
		if linkErr = s.archiveByLink(ctx); linkErr == nil {
			return nil
		}
	}
	err := retry(ctx, 0, func() error {
		return s.withProgress(ctx, s.spool.whole, s.api.postBlob)
	})
	if err != nil {
		return fmt.Errorf("archiving the log: %w", errors.Join(err, linkErr))
	}
	return nil
}

func (s *Stream) archiveByLink(ctx context.Context) error {
	// A link that hangs must leave time for the upload through the service.
	ctx, cancel := withShare(ctx, 0.5)
	defer cancel()
	return retry(ctx, linkAttempts, func() error {
		var link string // a new link for each attempt: a link may be valid only once
		err := s.attempt(ctx, func(ctx context.Context) (err error) {
			link, err = s.api.uploadLink(ctx)
			return err
		})
		if err != nil {
			return err
		}
		return s.withProgress(ctx, s.spool.whole, func(ctx context.Context, body bodyFunc) error {
			return s.api.putLink(ctx, link, body)
		})
	})
}

func (s *Stream) closeStream(ctx context.Context, snapshot bool) error {
	err := retry(ctx, 0, func() error {
		return s.withProgress(ctx, nil, func(ctx context.Context, _ bodyFunc) error { return s.api.closeStream(ctx, snapshot) })
	})
	// A stream that could not be opened does not exist.
	if e := (*statusError)(nil); !snapshot && errors.As(err, &e) && e.status == http.StatusNotFound {
		return nil
	}
	return err
}

var errStalled = errors.New("the request made no progress")

// withProgress makes a request without a time-out. It cancels the request if no part
// of the body is sent, and no answer arrives, for three times RequestTimeout.
func (s *Stream) withProgress(ctx context.Context, body bodyFunc, call func(context.Context, bodyFunc) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := 3 * s.cfg.RequestTimeout
	t := time.AfterFunc(limit, func() { cancel(errStalled) })
	defer t.Stop()
	err := s.keepOnFailure(func() error {
		return call(ctx, func() (io.Reader, int64) {
			r, size := body()
			return readerFunc(func(p []byte) (int, error) {
				t.Reset(limit)
				return r.Read(p)
			}), size
		})
	})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return &statusError{op: "archiving", err: cause}
	}
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// withShare returns a context with a share of the remaining time of ctx, which must
// have a deadline.
func withShare(ctx context.Context, share float64) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	remaining := time.Until(deadline)
	return context.WithTimeout(ctx, time.Duration(float64(remaining)*share))
}
