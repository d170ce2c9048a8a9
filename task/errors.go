package task

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Error is an error that knows how the task ends: a handler that returns it, or
// wraps it, decides the response's code with it.
type Error struct {
	// Code is the response's code. Empty means [Failed].
	Code Code
	// Status is the HTTP status and the "code" in the body. Zero means 500.
	Status int
	// Err is the reason. It reaches the manager, so it must hold no secret.
	Err error
}

// Errorf makes an Error with a code and status 500. The format knows %w.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// BadRequest makes an Error that says that the task's payload is wrong: FAILED
// with status 400.
func BadRequest(err error) *Error {
	return &Error{Code: Failed, Status: http.StatusBadRequest, Err: err}
}

// Error is the reason's text.
func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.code())
	}
	return e.Err.Error()
}

// Unwrap gives access to the reason.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) code() Code {
	if e.Code == "" {
		return Failed
	}
	return e.Code
}

// errorOf finds the Error in err, or makes the one that err stands for: an
// exceeded deadline is TIMEOUT, everything else FAILED with status 500.
func errorOf(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		e = &Error{Code: e.code(), Status: e.Status, Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		e = &Error{Code: Timeout, Status: http.StatusGatewayTimeout, Err: err}
	default:
		e = &Error{Code: Failed, Err: err}
	}
	if e.Status == 0 {
		e.Status = http.StatusInternalServerError
	}
	return e
}
