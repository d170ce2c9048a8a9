package clienttest

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/task"
)

// spoil lets a request meet its fault.
func (f *Faults) spoil(fault Fault, next http.Handler, w http.ResponseWriter, r *http.Request) {
	readAhead(r)
	if fault.Delay > 0 && fault.Kind != Hang && !f.hold(r.Context(), fault.Delay) {
		cut()
	}
	answer := &captured{header: make(http.Header)}
	switch fault.Kind {
	case Slow:
		next.ServeHTTP(w, r)
		return
	case LoseRequest:
		cut()
	case AnswerStatus, Hang, Redirect:
		if fault.Late {
			next.ServeHTTP(answer, r)
		}
	default:
		next.ServeHTTP(answer, r)
	}

	switch fault.Kind {
	case AnswerStatus:
		answerStatus(fault, w)
	case Hang:
		f.hold(r.Context(), fault.Delay)
		cut()
	case Truncate:
		truncate(answer, w)
	case Garbage:
		page(w, http.StatusOK, "text/html", cmp.Or(fault.Body, "<html><body>This is not the answer.</body></html>"))
	case EmptyBody:
		page(w, http.StatusOK, "application/json", "")
	case Oversize:
		oversize(w, cmp.Or(fault.Size, task.MaxBody+1<<20))
	case Redirect:
		w.Header().Set("Location", cmp.Or(fault.Location, "/redirected"))
		page(w, cmp.Or(fault.Status, http.StatusTemporaryRedirect), "text/plain", "")
	default: // LoseResponse
		cut()
	}
}

// cut ends the request without an answer, and with HTTP/1.1 its connection.
func cut() { panic(http.ErrAbortHandler) }

func answerStatus(fault Fault, w http.ResponseWriter) {
	status := cmp.Or(fault.Status, http.StatusServiceUnavailable)
	if fault.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((fault.RetryAfter+time.Second-1)/time.Second), 10))
	}
	body := cmp.Or(fault.Body, fmt.Sprintf("injected fault: %d %s", status, http.StatusText(status)))
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body = "" // these have none
	}
	page(w, status, "text/plain", body)
}

func page(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// truncate announces the whole body, sends half of it and cuts. An answer that
// has no body gets one that never comes.
func truncate(answer *captured, w http.ResponseWriter) {
	const announced = 64
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	body, status := answer.body.Bytes(), cmp.Or(answer.status, http.StatusOK)
	if len(body) == 0 {
		status = http.StatusOK // 204 could not announce a body
	}
	w.Header().Set("Content-Length", strconv.Itoa(cmp.Or(len(body), announced)))
	w.WriteHeader(status)
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush() // or the half would stay in a buffer
	cut()
}

// oversize sends size bytes of one JSON value, or as many as the client takes.
func oversize(w http.ResponseWriter, size int64) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	chunk := bytes.Repeat([]byte{' '}, 64<<10)
	for size > 2 {
		n, err := w.Write(chunk[:min(int64(len(chunk)), size-2)])
		if err != nil {
			return
		}
		size -= int64(n)
	}
	_, _ = w.Write([]byte("{}")[:size])
}

// captured holds an answer that the client will not see as it is.
type captured struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *captured) Header() http.Header { return c.header }

func (c *captured) WriteHeader(status int) {
	if c.status == 0 && status >= 200 {
		c.status = status
	}
}

func (c *captured) Write(b []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	return c.body.Write(b)
}
