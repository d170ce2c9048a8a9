package logservice

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/delegate-io/dlite/internal/logheader"
)

// patience is the maximum duration of one read or write on a connection.
const patience = 30 * time.Second

// ready is a closed channel.
var ready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// maxWriter bounds the name of a writer, in bytes.
const maxWriter = 128

// writerOf returns the name of the writer, or an empty string if the request has none.
func writerOf(r *http.Request) (string, error) {
	w := r.Header.Get(logheader.Writer)
	if len(w) > maxWriter {
		return "", &httpError{http.StatusBadRequest, logheader.Writer + " is too long"}
	}
	return w, nil
}

func (s *Server) openStream(w http.ResponseWriter, r *http.Request) {
	writer, err := writerOf(r)
	if err == nil {
		err = s.store.start(r.Context(), idOf(r), writer)
	}
	done(w, err)
}

// put contains the reusable memory of one PUT.
type put struct {
	body  bytes.Buffer
	lines []Line
}

// maxKept bounds the reused memory of a body, in bytes. The memory of its lines is
// bounded to about a quarter of it.
const maxKept = 2 << 20

var puts = sync.Pool{New: func() any { return new(put) }}

func (p *put) free() {
	if p.body.Cap() > maxKept || cap(p.lines) > maxKept/32 {
		return
	}
	clear(p.lines[:cap(p.lines)]) // lines may refer to other memory
	p.body.Reset()
	puts.Put(p)
}

func (s *Server) appendStream(w http.ResponseWriter, r *http.Request) {
	p := puts.Get().(*put)
	defer p.free()
	batch, err := s.batchOf(w, r, p)
	if err == nil {
		err = s.store.append(r.Context(), idOf(r), batch)
	}
	if behind := (*BehindError)(nil); errors.As(err, &behind) {
		w.Header().Set(logheader.Resume, strconv.FormatInt(behind.Next, 10))
	}
	done(w, err)
}

// batchOf reads the body of a PUT into the memory of p.
func (s *Server) batchOf(w http.ResponseWriter, r *http.Request, p *put) (b Batch, err error) {
	if b.Writer, err = writerOf(r); err != nil {
		return b, err
	}
	if text := r.Header.Get(logheader.Resume); text != "" {
		if b.Next, err = strconv.ParseInt(text, 10, 64); err != nil {
			return b, &httpError{http.StatusBadRequest, logheader.Resume + " is no number"}
		}
	}
	size := s.cfg.MaxPut
	if n := r.ContentLength; n >= 0 && n < size {
		size = n
	}
	if err := s.bodies.Acquire(r.Context(), size); err != nil {
		return b, err
	}
	defer s.bodies.Release(size)
	if err := readBody(w, r, &p.body, s.cfg.MaxPut); err != nil {
		return b, err
	}
	b.Lines, err = parse(p.lines[:0], p.body.Bytes())
	if b.Lines != nil {
		p.lines = b.Lines
	}
	return b, err
}

func (s *Server) closeStream(w http.ResponseWriter, r *http.Request) {
	done(w, s.store.finish(r.Context(), idOf(r), r.URL.Query().Get("snapshot") == "true"))
}

// done answers a call that returns no content.
func done(w http.ResponseWriter, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// readBody reads a body of at most limit bytes. It accepts every Content-Type.
func readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer, limit int64) error {
	if n := r.ContentLength; n > 0 && n <= limit {
		body.Grow(int(n) + bytes.MinRead) // allocate once
	}
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		return bodyError(err)
	}
	return nil
}

// bodyError returns the error for a body that cannot be read.
func bodyError(err error) error {
	if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
		return err
	}
	return &httpError{http.StatusBadRequest, fmt.Sprintf("reading the body: %v", err)}
}
