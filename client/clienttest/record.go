package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/delegate-io/dlite/task"
)

const (
	// maxBody bounds a request: base64 makes a third more of the largest answer.
	maxBody = 2 * task.MaxBody
	// keepBody is how much of a body a record keeps.
	keepBody = 64 << 10
	// keepRecords is how many records are kept.
	keepRecords = 10_000
)

// Record is a request that arrived, the spoiled ones included.
type Record struct {
	Call   Call
	Method string
	// Path is the request's, without the prefix of [WithPrefix].
	Path   string
	Query  url.Values
	Header http.Header
	// Body is what was sent, at most the first 64 KiB.
	Body []byte
	// DelegateID and TaskID are those that the path or the query names.
	DelegateID string
	TaskID     string
	// Start is when the request had arrived, with its body. Duration is how long
	// it took to answer it.
	Start    time.Time
	Duration time.Duration
	// Status is what was answered, 0 when the connection was cut.
	Status int
	// Fault is the name of the fault that it met, empty for none.
	Fault string
}

// Calls returns the requests that have been answered or cut, in the order of
// their end. The last 10,000 are kept. With calls given only those are returned.
func (s *Server) Calls(calls ...Call) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, r := range s.records {
		if matchesAny(r.Call, calls) {
			out = append(out, r)
		}
	}
	return out
}

// Count is how many requests of the given calls have been answered or cut, since
// the start. Without calls it counts all.
func (s *Server) Count(calls ...Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(calls)
}

func (s *Server) count(calls []Call) int {
	n := 0
	for call, c := range s.counts {
		if matchesAny(call, calls) {
			n += c
		}
	}
	return n
}

func matchesAny(c Call, calls []Call) bool {
	for _, want := range calls {
		if want == CallAny || want == c {
			return true
		}
	}
	return len(calls) == 0
}

// WaitCalls waits until n requests of a call have been answered or cut, since the
// start. Its error is the context's, or [ErrClosed].
func (s *Server) WaitCalls(ctx context.Context, call Call, n int) error {
	for {
		s.mu.Lock()
		count, recorded := s.count([]Call{call}), s.recorded.wait()
		s.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-recorded:
		case <-s.done:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d calls (%s), of which %d came: %w", n, call, count, ctx.Err())
		}
	}
}

// entry is a record in the making; it travels in the request's context.
type entry struct {
	target
	fault string
}

type entryKey struct{}

func entryOf(r *http.Request) *entry {
	e, _ := r.Context().Value(entryKey{}).(*entry) // record put it there
	return e
}

// record keeps a record of each request. It goes outside of the faults.
func (s *Server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "reading the body: "+err.Error(), status)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		e := &entry{target: s.calls.classify(r)}
		s.arrived(e)
		rec := Record{
			Call: e.call, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(),
			Body: body[:min(len(body), keepBody):min(len(body), keepBody)], DelegateID: e.delegateID, TaskID: e.taskID,
			Start: time.Now(),
		}
		answer, cut := &status{ResponseWriter: w}, true
		defer func() {
			if !cut {
				rec.Status = answer.code
			}
			rec.Fault, rec.Duration = e.fault, time.Since(rec.Start)
			s.keep(rec)
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
		cut = false
	})
}

func (s *Server) keep(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[rec.Call]++
	s.records = append(s.records, rec)
	if len(s.records) > 2*keepRecords { // rarely, so that it costs nothing
		s.records = append([]Record(nil), s.records[len(s.records)-keepRecords:]...)
	}
	s.recorded.raise()
}

// status remembers the status that was answered.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 && code >= 200 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.WriteHeader(http.StatusOK)
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach what is underneath.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// signal wakes all who wait. The owner's lock guards it; the zero value works.
type signal struct{ ch chan struct{} }

// wait is closed at the next raise.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) raise() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
