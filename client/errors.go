package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Kinds of an [Error], for [errors.Is].
var (
	// ErrUnauthorized is status 401 or 403. Retries do not help until the
	// credentials change. The poller registers again (rule C4).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrGone is status 404 or 410: the manager does not know the delegate or the
	// task.
	ErrGone = errors.New("gone")
	// ErrConflict is status 409: another call was first.
	ErrConflict = errors.New("conflict")
	// ErrRetryable is a connection error or status 429, 500, 502, 503 or 504: the
	// call may succeed later. A call that its caller cancelled is not retryable. A
	// call that exceeded a deadline is.
	ErrRetryable = errors.New("retryable")
	// ErrMalformed means that an answer has a 2xx status and an invalid body.
	ErrMalformed = errors.New("malformed answer")
	// ErrTooLarge means that a request or an answer exceeds the client's limit, or
	// that the manager answered with status 413.
	ErrTooLarge = errors.New("body too large")
)

// Error is the failure of a call after its retries.
type Error struct {
	// Method and Path describe the request. Path has no query and no token.
	Method, Path string
	// Status is the HTTP status, 0 if no answer arrived.
	Status int
	// Message is an excerpt of the manager's message.
	Message string
	// RetryAfter is the pause that the manager asked for, 0 if it did not.
	RetryAfter time.Duration
	// Err is the cause if no answer arrived or it could not be read.
	Err error
}

// Error returns the request, the status, the cause and the message.
func (e *Error) Error() string {
	s := e.Method + " " + e.Path
	if e.Status != 0 {
		s += fmt.Sprintf(": %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap returns the cause, nil for an answer with an error status.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the error is of the kind target.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrGone:
		return e.Status == http.StatusNotFound || e.Status == http.StatusGone
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrTooLarge:
		return e.Status == http.StatusRequestEntityTooLarge
	case ErrRetryable:
		return e.isRetryable()
	}
	return false
}

func (e *Error) isRetryable() bool {
	if errors.Is(e.Err, context.Canceled) {
		return false
	}
	switch e.Status {
	case 0:
		return !errors.Is(e.Err, ErrTooLarge)
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
