package logger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// linkAttempts is how often an upload link is tried before the archive goes
// through the service.
const linkAttempts = 3

// finishLive has the sender send what is left and waits for its end. While the
// archive will have everything anyway, it gets the smaller part of the time.
func (s *Stream) finishLive(ctx context.Context) {
	close(s.closing)
	share := 0.75
	if s.archives() {
		share = 0.25
	}
	ctx, cancel := part(ctx, share)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.stop()
	<-s.done
}

// finish archives, closes the live stream, and takes stock of what was lost.
func (s *Stream) finish(ctx context.Context) error {
	stored, lost, lostErr := s.spool.counts()
	missing := tally{stored.lines - s.delivered.lines, stored.bytes - s.delivered.bytes}
	// What was given up is in the live stream alone.
	snapshot := s.cfg.SkipOpeningStream || !s.spool.intact()

	var archiveErr, closeErr error
	if s.archives() {
		if archiveErr = s.archive(ctx); archiveErr == nil {
			missing = tally{}
		} else {
			// What came through live is worth keeping.
			snapshot = true
		}
	}
	if !s.cfg.SkipClosingStream {
		closeErr = s.closeStream(ctx, snapshot)
	}
	if archiveErr != nil && closeErr != nil {
		missing = stored
	}

	var errs []error
	if missing.lines > 0 || lost.lines > 0 {
		if missing.lines > 0 {
			lostErr = errors.Join(lostErr, archiveErr, s.liveErr)
		}
		if lostErr == nil {
			lostErr = errors.New("no time was left to send it")
		}
		errs = append(errs, &LossError{
			Lines: missing.lines + lost.lines, Bytes: missing.bytes + lost.bytes, Err: lostErr,
		})
	}
	if closeErr != nil {
		errs = append(errs, fmt.Errorf("closing the log stream: %w", closeErr))
	}
	return errors.Join(errs...)
}

// archive uploads the whole log, by link where the configuration says so, and
// through the service otherwise or when the link fails. Some time is left for
// closing the stream.
func (s *Stream) archive(ctx context.Context) error {
	ctx, cancel := part(ctx, 0.9)
	defer cancel()
	var linkErr error
	if !s.cfg.IndirectUpload {
		if linkErr = s.archiveByLink(ctx); linkErr == nil {
			return nil
		}
	}
	err := persist(ctx, func() error {
		return s.watched(ctx, s.spool.whole, s.api.postBlob)
	})
	if err != nil {
		return fmt.Errorf("archiving the log: %w", errors.Join(linkErr, err))
	}
	return nil
}

func (s *Stream) archiveByLink(ctx context.Context) error {
	// A link that hangs must not take the time that the other way needs.
	ctx, cancel := part(ctx, 0.5)
	defer cancel()
	var err error
	for try := range linkAttempts {
		// A new link each time: the old one may be used up.
		var link string
		err = s.once(ctx, func(ctx context.Context) (err error) {
			link, err = s.api.uploadLink(ctx)
			return err
		})
		if err == nil {
			err = s.watched(ctx, s.spool.whole, func(ctx context.Context, body bodyFunc) error {
				return s.api.putLink(ctx, link, body)
			})
		}
		if err == nil || !retryable(err) || !sleep(ctx, nil, delay(try, err)) {
			return err
		}
	}
	return err
}

func (s *Stream) closeStream(ctx context.Context, snapshot bool) error {
	err := persist(ctx, func() error {
		return s.watched(ctx, nil, func(ctx context.Context, _ bodyFunc) error { return s.api.closeStream(ctx, snapshot) })
	})
	// A stream that could not be opened is not there to be closed.
	if e := (*statusError)(nil); !snapshot && errors.As(err, &e) && e.status == http.StatusNotFound {
		return nil
	}
	return err
}

var errStalled = errors.New("nothing moved any more")

// watched makes a request that may take long, but not stand still: it ends when
// neither the body moves nor an answer comes.
func (s *Stream) watched(ctx context.Context, body bodyFunc, call func(context.Context, bodyFunc) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := 3 * s.cfg.RequestTimeout
	t := time.AfterFunc(patience, func() { cancel(errStalled) })
	defer t.Stop()
	err := call(ctx, func() (io.Reader, int64) {
		r, size := body()
		return readerFunc(func(p []byte) (int, error) {
			t.Reset(patience)
			return r.Read(p)
		}), size
	})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return &statusError{op: "archiving", err: cause}
	}
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// part is a context with a share of the time that ctx has left. ctx has a
// deadline.
func part(ctx context.Context, share float64) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	return context.WithTimeout(ctx, time.Duration(float64(left)*share))
}
