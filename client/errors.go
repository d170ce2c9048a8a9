package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// What an [Error] is, for [errors.Is].
var (
	// ErrUnauthorized: 401 or 403. Final until the credentials change; the
	// poller registers again (SPEC C4).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrGone: 404 or 410. The manager does not know the delegate or the task.
	ErrGone = errors.New("gone")
	// ErrConflict: 409. Somebody else was first.
	ErrConflict = errors.New("conflict")
	// ErrRetryable: a connection error, 429, 500, 502, 503 or 504. The call may
	// succeed later. A call whose caller has cancelled it is never retryable,
	// whatever its last attempt came to: nobody wants it any more. One that ran
	// into a deadline is.
	ErrRetryable = errors.New("retryable")
	// ErrMalformed: the answer's status was good and its body was not.
	ErrMalformed = errors.New("malformed answer")
	// ErrTooLarge: a body, either way, is over the limit, the client's own or, with
	// 413, the manager's.
	ErrTooLarge = errors.New("body too large")
)

// Error is a call that failed, after its retries.
type Error struct {
	// Method and Path are the request's; the path carries no query and no token.
	Method, Path string
	// Status is the HTTP status, 0 when no answer came.
	Status int
	// Message is the server's, cut to an excerpt.
	Message string
	// RetryAfter is what the server asked for, 0 when it did not.
	RetryAfter time.Duration
	// Err is the cause where no answer came or it could not be read.
	Err error
}

// Error says what was called and what came of it.
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

// Unwrap is the cause, nil for an answer with an error status.
func (e *Error) Unwrap() error { return e.Err }

// Is tells the kinds of errors apart.
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
		return e.retryable()
	}
	return false
}

func (e *Error) retryable() bool {
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
