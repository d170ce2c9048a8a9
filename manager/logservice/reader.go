package logservice

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// Values of the query member "format" of GET /stream and GET /blob.
const (
	formatEvents = "sse"    // GET /stream: server-sent events, the default
	formatLines  = "ndjson" // GET /blob: newline-delimited line objects, the default
	formatText   = "text"   // both: the texts of the lines
)

const (
	textType = "text/plain; charset=utf-8"
	// defaultTextWait is how long GET /stream with format=text waits for a log that
	// does not exist, if the request does not say.
	defaultTextWait = 30 * time.Second
	// otherUploads is the interval at which a reader that waits looks for an archive that
	// another server with the same bucket has uploaded.
	otherUploads = 5 * time.Second
	// maxWait bounds the query member "wait".
	maxWait = 5 * time.Minute
)

// formatOf returns the format that the request asks for. The first valid format is
// the default.
func formatOf(r *http.Request, valid ...string) (string, error) {
	format := r.URL.Query().Get("format")
	switch {
	case format == "":
		return valid[0], nil
	case slices.Contains(valid, format):
		return format, nil
	}
	return "", &httpError{http.StatusBadRequest, fmt.Sprintf("format %q is unknown: it must be one of %s", format, strings.Join(valid, ", "))}
}

// waitOf returns how long the request waits for a log that does not exist.
func waitOf(r *http.Request, format string) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		if format == formatText {
			return defaultTextWait, nil
		}
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if wait := time.Duration(n) * time.Second; err == nil && wait <= maxWait {
		return wait, nil
	}
	return 0, &httpError{http.StatusBadRequest, fmt.Sprintf("wait must be a number of seconds from 0 to %d", maxWait/time.Second)}
}

// readStream sends a log as server-sent events or as text. Until the log exists it
// waits as long as the request says.
func (s *Server) readStream(w http.ResponseWriter, r *http.Request) {
	release, err := s.readers.tryAcquire(idOf(r).Account, 1)
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	f := follower{store: s.store, id: idOf(r)}
	defer f.close()
	format, err := formatOf(r, formatEvents, formatText)
	if err != nil {
		fail(w, err)
		return
	}
	wait, err := waitOf(r, format)
	if err == nil {
		err = f.begin(r)
	}
	if err != nil {
		fail(w, err)
		return
	}
	u, err := f.await(r.Context(), wait)
	if err != nil {
		fail(w, err)
		return
	}
	out := newStreamWriter(w, format)
	if out.flush() != nil { // the reader sees that it is connected
		return
	}
	if err := s.stream(r.Context(), &f, u, out); err != nil {
		out.abort()
	}
}

// stream sends u and all later lines. It returns an error if the answer is incomplete.
func (s *Server) stream(ctx context.Context, f *follower, u update, out *streamWriter) error {
	ping := time.NewTicker(s.cfg.PingInterval)
	defer ping.Stop()
	for {
		if err := out.lines(u.lines); err != nil {
			return err
		}
		if u.end {
			out.eof()
			return nil
		}
		if u.more {
			u.changed = ready
		}
		select {
		case <-u.changed:
		case <-ping.C:
			if err := out.ping(); err != nil {
				return err
			}
			u.lines = nil
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		var err error
		u, err = f.read(ctx)
		switch {
		case errors.Is(err, livelog.ErrUnknown):
			u = update{end: true} // the log was removed meanwhile
		case err != nil:
			return err // The log has not ended: the reader should reconnect.
		}
	}
}

// begin sets the first line from the request.
func (f *follower) begin(r *http.Request) error {
	text, first := r.URL.Query().Get("from"), int64(0)
	if text == "" {
		text, first = r.Header.Get("Last-Event-ID"), 1 // the client has this event
	}
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return &httpError{http.StatusBadRequest, "from is no line number"}
	}
	f.next = n + first
	return nil
}

// await returns the first update. If the log does not exist, it waits for it, and fails
// with ErrUnknown after wait.
func (f *follower) await(ctx context.Context, wait time.Duration) (update, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for last := wait == 0; ; {
		u, err := f.read(ctx)
		if last || !errors.Is(err, livelog.ErrUnknown) {
			return u, err
		}
		f.begun = false // the log was removed before its first line was read
		select {
		case <-u.changed:
		case <-u.uploaded:
		case <-time.After(otherUploads):
			// Another server may have archived an upload.
		case <-deadline.C:
			last = true
		case <-ctx.Done():
			return u, ctx.Err()
		}
	}
}

// streamWriter writes a live log as server-sent events or as text.
type streamWriter struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	text bool
	buf  bytes.Buffer
}

// newStreamWriter sets the headers of the answer.
func newStreamWriter(w http.ResponseWriter, format string) *streamWriter {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	if format == formatText {
		h.Set("Content-Type", textType)
		h.Set("X-Content-Type-Options", "nosniff")
	}
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // prevents buffering in proxies
	return &streamWriter{w: w, rc: http.NewResponseController(w), text: format == formatText}
}

func (s *streamWriter) lines(lines []livelog.Line) error {
	for _, l := range lines {
		if s.text {
			writeText(&s.buf, l)
		} else {
			fmt.Fprintf(&s.buf, "id: %d\ndata: %s\n\n", l.Pos, l.Raw)
		}
		if s.buf.Len() > 64<<10 {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return s.flush()
}

// ping keeps the connection of a silent stream alive. The text format has no comments,
// so ping only flushes it.
func (s *streamWriter) ping() error {
	if !s.text {
		s.buf.WriteString(": ping\n\n")
	}
	return s.flush()
}

func (s *streamWriter) eof() {
	if !s.text {
		s.buf.WriteString("event: eof\ndata: eof\n\n")
	}
	_ = s.flush() // the reader detects the end of the connection
}

// abort ends an incomplete answer. Server-sent events then lack the eof event. A text
// answer is aborted without a last chunk.
func (s *streamWriter) abort() {
	if s.text {
		panic(http.ErrAbortHandler)
	}
}

func (s *streamWriter) flush() error {
	if _, err := s.buf.WriteTo(s.w); err != nil {
		return err
	}
	return s.rc.Flush()
}

// writeText writes the text of a line. It ends every line with a newline: a writer with
// trim_new_line_suffix removes the newlines.
func writeText(dst *bytes.Buffer, l livelog.Line) {
	out := decode(l.Raw).Out
	dst.WriteString(out)
	if !strings.HasSuffix(out, "\n") {
		dst.WriteByte('\n')
	}
}

// copyText writes the text of each newline-delimited line of src.
func copyText(dst io.Writer, src io.Reader) error {
	lines := archived{r: io.NopCloser(src), lines: bufio.NewReader(src), number: -1}
	var buf bytes.Buffer
	for {
		u, err := lines.read(math.MinInt64) // a pos may have any value
		if err != nil {
			return err
		}
		for _, l := range u.lines {
			writeText(&buf, l)
		}
		if _, err := buf.WriteTo(dst); err != nil || u.end {
			return err
		}
	}
}
