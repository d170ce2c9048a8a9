package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	// Patience is the longest time for which a guarded handler waits for a client: for a
	// part of a body to arrive, or for a part of an answer to leave.
	Patience = 30 * time.Second
	// minRate is the lowest average rate of a body, in bytes per second. The first
	// Patience is free.
	minRate = 1 << 10
	// maxPart bounds the bytes that must leave within Patience.
	maxPart = 256 << 10
)

// Guard returns a handler that gives deadlines to the requests of next, on every server.
// Reading a body fails with [os.ErrDeadlineExceeded] if nothing arrives for [Patience],
// or if it arrives more slowly than 1 KiB a second. The time that next needs between two
// reads does not count. Writing fails if 256 KiB do not leave within Patience. Answers
// may pause for any time.
func Guard(next http.Handler) http.Handler { return guard(next, Patience) }

func guard(next http.Handler, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, guarded := w.(*writer); guarded {
			next.ServeHTTP(w, r)
			return
		}
		out := &writer{ResponseWriter: w, rc: http.NewResponseController(w), patience: patience, multiplexed: r.ProtoMajor > 1}
		defer out.end(r)
		out.clear() // of the server
		if r.Body != nil && r.Body != http.NoBody {
			// This deadline also bounds the server's own reading of a body that next
			// does not read.
			_ = out.rc.SetReadDeadline(time.Now().Add(patience))
			with := *r
			with.Body = &body{ReadCloser: r.Body, rc: out.rc, patience: patience}
			r = &with
		}
		next.ServeHTTP(out, r)
	})
}

// body is the body of a guarded request.
type body struct {
	io.ReadCloser
	rc       *http.ResponseController
	patience time.Duration
	received int64
	waited   time.Duration
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	left := b.patience + time.Duration(b.received)*(time.Second/minRate) - b.waited
	// Some connections support no deadlines, such as those of tests.
	_ = b.rc.SetReadDeadline(began.Add(min(left, b.patience)))
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	b.waited += time.Since(began)
	if errors.Is(err, io.EOF) {
		// The server reads on, to notice the end of the connection.
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// writer is the ResponseWriter of a guarded request.
type writer struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
	// multiplexed reports whether a deadline ends the stream also while nothing is
	// written, as in HTTP/2.
	multiplexed bool
}

// Write implements [http.ResponseWriter].
func (w *writer) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+maxPart)]
		w.renew()
		m, err := w.ResponseWriter.Write(part)
		n += m
		if err != nil || n >= len(p) {
			w.clear()
			return n, err
		}
	}
}

// FlushError implements the optional method of [http.ResponseController].
func (w *writer) FlushError() error {
	w.renew()
	defer w.clear()
	return w.rc.Flush()
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// Unwrap gives [http.ResponseController] the other methods.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) renew() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.patience)) }

// clear removes the deadline if it would end a stream that pauses.
func (w *writer) clear() {
	if w.multiplexed {
		_ = w.rc.SetWriteDeadline(time.Time{})
	}
}

// end sets the deadline for the rest of the answer, which the server writes. If the
// server does not set one for the next request, that request must not inherit it.
func (w *writer) end(r *http.Request) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		w.renew()
		return
	}
	_ = w.rc.SetWriteDeadline(time.Time{})
}

// TooSlow reports whether reading a body failed because the client was too slow.
func TooSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
