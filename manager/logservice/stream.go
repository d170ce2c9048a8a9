package logservice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/logger"
)

// readerPatience is how long one write to a reader may take.
const readerPatience = 30 * time.Second

// maxWriter bounds the name of a writer.
const maxWriter = 128

// writerOf is the name by which a writer recognises itself, empty without one.
func writerOf(r *http.Request) (string, error) {
	w := r.Header.Get(logger.WriterHeader)
	if len(w) > maxWriter {
		return "", &httpError{http.StatusBadRequest, logger.WriterHeader + " is too long"}
	}
	return w, nil
}

func (s *Server) openStream(w http.ResponseWriter, r *http.Request) {
	writer, err := writerOf(r)
	if err == nil {
		err = s.store.start(idOf(r), writer)
	}
	done(w, err)
}

func (s *Server) appendStream(w http.ResponseWriter, r *http.Request) {
	writer, err := writerOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	body, err := readBody(w, r, s.cfg.MaxPut)
	if err != nil {
		fail(w, err)
		return
	}
	lines, err := parse(body)
	if err == nil {
		err = s.store.append(idOf(r), writer, lines)
	}
	done(w, err)
}

func (s *Server) closeStream(w http.ResponseWriter, r *http.Request) {
	done(w, s.store.finish(idOf(r), r.URL.Query().Get("snapshot") == "true"))
}

// done answers a call that has no answer.
func done(w http.ResponseWriter, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readBody reads a body of at most limit bytes, whatever its Content-Type.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if big := (*http.MaxBytesError)(nil); err != nil && !errors.As(err, &big) {
		return nil, &httpError{http.StatusBadRequest, fmt.Sprintf("reading the body: %v", err)}
	}
	return body, err
}

// parse reads the lines of a PUT. They are kept as they are; an object is all
// that is asked of them.
func parse(body []byte) ([]line, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(body, &raws); err != nil {
		return nil, &httpError{http.StatusBadRequest, fmt.Sprintf("decoding the lines: %v", err)}
	}
	lines := make([]line, 0, len(raws))
	for i, raw := range raws {
		var l struct{ Pos int64 }
		if err := json.Unmarshal(raw, &l); err != nil || bytes.Equal(raw, []byte("null")) {
			return nil, &httpError{http.StatusBadRequest, fmt.Sprintf("line %d is no line object", i)}
		}
		if bytes.ContainsAny(raw, "\r\n") {
			// One line each, for events and archive.
			var b bytes.Buffer
			_ = json.Compact(&b, raw) // it is JSON
			raw = b.Bytes()
		}
		lines = append(lines, line{raw: raw, pos: l.Pos})
	}
	return lines, nil
}

// readStream sends a log as server-sent events.
func (s *Server) readStream(w http.ResponseWriter, r *http.Request) {
	f := follower{store: s.store, id: idOf(r)}
	if err := f.begin(r); err != nil {
		fail(w, err)
		return
	}
	u, err := f.read()
	if err != nil {
		fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // for proxies that would wait for more
	out := events{w: w, rc: http.NewResponseController(w)}
	defer out.end()
	ping := time.NewTicker(s.cfg.PingInterval)
	defer ping.Stop()
	for {
		if out.lines(u.lines) != nil {
			return
		}
		if u.end {
			out.eof()
			return
		}
		select {
		case <-u.changed:
		case <-ping.C:
			if out.ping() != nil {
				return
			}
			u.lines = nil
			continue
		case <-r.Context().Done():
			return
		}
		u, err = f.read()
		switch {
		case errors.Is(err, errUnknown):
			u = update{end: true} // forgotten meanwhile
		case err != nil:
			return // not the log's end: the reader should come back
		}
	}
}

// begin sets the first line from the request.
func (f *follower) begin(r *http.Request) error {
	text, first := r.URL.Query().Get("from"), int64(0)
	if text == "" {
		text, first = r.Header.Get("Last-Event-ID"), 1 // that one was seen
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

// events writes server-sent events.
type events struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

func (e *events) lines(lines []line) error {
	for _, l := range lines {
		fmt.Fprintf(&e.buf, "id: %d\ndata: %s\n\n", l.pos, l.raw)
		if e.buf.Len() > 64<<10 {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return e.flush()
}

func (e *events) ping() error {
	e.buf.WriteString(": ping\n\n")
	return e.flush()
}

func (e *events) eof() {
	e.buf.WriteString("event: eof\ndata: eof\n\n")
	_ = e.flush() // the reader will see the connection's end
}

func (e *events) flush() error {
	// A reader that reads nothing is dropped. Not every ResponseWriter can.
	_ = e.rc.SetWriteDeadline(time.Now().Add(readerPatience))
	if _, err := e.buf.WriteTo(e.w); err != nil {
		return err
	}
	return e.rc.Flush()
}

// end leaves the connection as it was.
func (e *events) end() { _ = e.rc.SetWriteDeadline(time.Time{}) }
