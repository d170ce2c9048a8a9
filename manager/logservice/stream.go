package logservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// ready is a closed channel.
var ready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// writerOf returns the name of the writer, or an empty string if the request has none.
func writerOf(r *http.Request) string { return r.Header.Get(logheader.Writer) }

func (s *Server) openStream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(logheader.Complete, "false")
	done(w, s.store.start(r.Context(), idOf(r), writerOf(r)))
}

// put contains the reusable memory of one PUT.
type put struct {
	body  bytes.Buffer
	lines []livelog.Line
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
	complete := r.Header.Get(logheader.Complete) == "true"
	batch, release, err := s.batchOf(w, r, p)
	if err == nil {
		defer release()
		if complete {
			err = s.store.complete(r.Context(), idOf(r), batch)
		} else {
			err = s.store.append(r.Context(), idOf(r), batch)
		}
	}
	w.Header().Set(logheader.Complete, strconv.FormatBool(complete && err == nil))
	if behind := (*livelog.BehindError)(nil); errors.As(err, &behind) {
		w.Header().Set(logheader.Resume, strconv.FormatInt(behind.Next, 10))
	}
	done(w, err)
}

// batchOf reads the body of a PUT into the memory of p.
// The caller must call release when the lines are stored.
func (s *Server) batchOf(w http.ResponseWriter, r *http.Request, p *put) (b livelog.Batch, release func(), err error) {
	b.Writer = writerOf(r)
	if text := r.Header.Get(logheader.Resume); text != "" {
		if b.Next, err = strconv.ParseInt(text, 10, 64); err != nil {
			return b, nil, &httpError{http.StatusBadRequest, logheader.Resume + " is not a number"}
		}
	}
	if release, err = s.readBody(w, r, &p.body); err != nil {
		return b, nil, err
	}
	b.Lines, err = parse(p.lines[:0], p.body.Bytes())
	if b.Lines != nil {
		p.lines = b.Lines
	}
	if err != nil {
		release()
	}
	return b, release, err
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

// freeBody is the part of a body that needs no budget, in bytes. Most batches are
// smaller. A client that sends nothing therefore occupies no part of the budget.
const freeBody = 16 << 10

// readBody reads the body of a PUT. It accepts every Content-Type. The caller must call
// release when it does not need the body any more.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) (release func(), err error) {
	if r.ContentLength > s.cfg.MaxPut {
		return nil, &http.MaxBytesError{Limit: s.cfg.MaxPut}
	}
	in := http.MaxBytesReader(w, r.Body, s.cfg.MaxPut)
	release = func() {}
	_, err = io.CopyN(body, in, freeBody)
	if err == nil {
		size := r.ContentLength
		if size < 0 {
			size = s.cfg.MaxPut
		}
		if release, err = s.bodies.acquire(r.Context(), idOf(r).Account, size); err != nil {
			return nil, err
		}
		if r.ContentLength > 0 {
			body.Grow(int(size) - freeBody + bytes.MinRead) // allocate once
		}
		_, err = body.ReadFrom(in)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		release()
		return nil, bodyError(err)
	}
	return release, nil
}

// bodyError returns the error for a body that cannot be read.
func bodyError(err error) error {
	if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
		return err
	}
	if httpserver.TooSlow(err) {
		return &httpError{http.StatusRequestTimeout, "the body arrives too slowly"}
	}
	return &httpError{http.StatusBadRequest, fmt.Sprintf("reading the body: %v", err)}
}
