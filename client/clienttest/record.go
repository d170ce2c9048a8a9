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

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/task"
)

const (
	// maxBody is the size limit of a request in bytes: base64 makes the largest
	// answer a third longer.
	maxBody = 2 * task.MaxBody
	// recordedBody is the number of bytes of a body that a record keeps.
	recordedBody = 64 << 10
	// maxRecords is the number of records that the server keeps.
	maxRecords = 10_000
)

// Record is a request that arrived, including requests that a middleware dropped.
type Record struct {
	// Call is the call that the request is, see [CallOf].
	Call   string
	Method string
	// Path is the path of the request without the prefix of [WithPrefix].
	Path   string
	Query  url.Values
	Header http.Header
	// Body is the body of the request, at most its first 64 KiB.
	Body []byte
	// DelegateID and TaskID are the ids that the path or the query names.
	DelegateID string
	TaskID     string
	// Start is the time at which the whole request had arrived. Duration is the
	// time until its answer.
	Start    time.Time
	Duration time.Duration
	// Status is the status of the answer, 0 if the connection was closed.
	Status int
}

// Calls returns the finished requests in the order in which they ended, at most
// the last 10,000. If calls are given, such as "poll", it returns only those. A name that
// [CallOf] never returns panics, here and in Count and WaitCalls.
func (s *Server) Calls(calls ...string) []Record {
	checkCalls(calls...)
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

// Count returns the number of finished requests of the given calls since the
// start. Without calls it counts all requests.
func (s *Server) Count(calls ...string) int {
	checkCalls(calls...)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count(calls)
}

func (s *Server) count(calls []string) int {
	n := 0
	for call, c := range s.counts {
		if matchesAny(call, calls) {
			n += c
		}
	}
	return n
}

func matchesAny(c string, calls []string) bool {
	for _, want := range calls {
		if want == c {
			return true
		}
	}
	return len(calls) == 0
}

// WaitCalls returns when n requests of a call have finished since the start. An empty
// call counts all requests. It returns the error of the context, or one after [Server.Close].
func (s *Server) WaitCalls(ctx context.Context, call string, n int) error {
	var calls []string
	if call != "" {
		calls = []string{call}
	}
	checkCalls(calls...)
	for {
		s.mu.Lock()
		count, recorded := s.count(calls), s.recorded.wait()
		s.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-recorded:
		case <-s.done:
			return errClosed
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d calls (%s), %d came: %w", n, call, count, ctx.Err())
		}
	}
}

// arrival describes a request that is being served. The context of the request
// carries it.
type arrival struct {
	call       string
	delegateID string
	taskID     string
}

type arrivalKey struct{}

func arrivalOf(r *http.Request) *arrival {
	a, _ := r.Context().Value(arrivalKey{}).(*arrival) // always there, see record
	return a
}

// record records each request. It runs outside of the middleware.
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
		a := new(arrival)
		a.call, a.delegateID, a.taskID = CallOf(r)
		s.countAttempt(a)
		rec := Record{
			Call: a.call, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(),
			Body: body[:min(len(body), recordedBody):min(len(body), recordedBody)], DelegateID: a.delegateID, TaskID: a.taskID,
			Start: time.Now(),
		}
		answer, answered := answers.Watch(w), false
		defer func() {
			if answered {
				rec.Status = answer.Status
			}
			rec.Duration = time.Since(rec.Start)
			s.addRecord(rec)
		}()
		next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), arrivalKey{}, a)))
		answered = true
	})
}

func (s *Server) addRecord(rec Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[rec.Call]++
	s.records = append(s.records, rec)
	if len(s.records) > 2*maxRecords { // copies rarely
		s.records = append([]Record(nil), s.records[len(s.records)-maxRecords:]...)
	}
	s.recorded.send()
}
