package clientfaults

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/task"
)

// serveFault serves a request that meets a fault.
func (f *Faults) serveFault(fault Fault, next http.Handler, w http.ResponseWriter, r *http.Request) {
	bufferBody(r)
	if fault.Delay > 0 && fault.Kind != Hang && !f.hold(r.Context(), fault.Delay) {
		closeConnection()
	}
	answer := httptest.NewRecorder() // the client does not see this answer as it is
	switch fault.Kind {
	case Slow:
		next.ServeHTTP(w, r)
		return
	case DropRequest:
		closeConnection()
	case AnswerStatus, Hang, Redirect:
		if fault.Late {
			next.ServeHTTP(answer, r)
		}
	default:
		next.ServeHTTP(answer, r)
	}

	switch fault.Kind {
	case AnswerStatus:
		writeStatus(fault, w)
	case Hang:
		f.hold(r.Context(), fault.Delay)
		closeConnection()
	case Truncate:
		writeTruncated(answer, w)
	case Garbage:
		writePage(w, http.StatusOK, "text/html", cmp.Or(fault.Body, "<html><body>This is not the answer.</body></html>"))
	case EmptyBody:
		writePage(w, http.StatusOK, "application/json", "")
	case Oversize:
		writeOversize(w, cmp.Or(fault.Size, task.MaxBody+1<<20))
	case Redirect:
		w.Header().Set("Location", cmp.Or(fault.Location, "/redirected"))
		writePage(w, cmp.Or(fault.Status, http.StatusTemporaryRedirect), "text/plain", "")
	default: // DropResponse
		closeConnection()
	}
}

// closeConnection ends the request without an answer. With HTTP/1.1 this closes
// the connection, with HTTP/2 the stream.
func closeConnection() { panic(http.ErrAbortHandler) }

func writeStatus(fault Fault, w http.ResponseWriter) {
	status := cmp.Or(fault.Status, http.StatusServiceUnavailable)
	if fault.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((fault.RetryAfter+time.Second-1)/time.Second), 10))
	}
	body := cmp.Or(fault.Body, fmt.Sprintf("injected fault: %d %s", status, http.StatusText(status)))
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body = "" // these statuses have no body
	}
	writePage(w, status, "text/plain", body)
}

func writePage(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// writeTruncated announces the whole body, sends half of it and closes the
// connection. An answer without a body announces 64 bytes and sends none.
func writeTruncated(answer *httptest.ResponseRecorder, w http.ResponseWriter) {
	const announced = 64
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	body, status := answer.Body.Bytes(), answer.Code
	if len(body) == 0 {
		status = http.StatusOK // 204 cannot announce a body
	}
	w.Header().Set("Content-Length", strconv.Itoa(cmp.Or(len(body), announced)))
	w.WriteHeader(status)
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush() // otherwise the half stays in a buffer
	closeConnection()
}

// writeOversize sends one JSON value of size bytes, or until the client stops
// reading.
func writeOversize(w http.ResponseWriter, size int64) {
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
