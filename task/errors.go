package task

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Error is an error with the code of the response. A handler that returns it, or
// wraps it, ends the task with that code.
type Error struct {
	// Code is the response's code. Empty means [Failed].
	Code Code
	// Status is the HTTP status and the "code" in the body. Zero means 500.
	Status int
	// Err is the reason. It is sent to the manager and must not contain a secret.
	Err error
}

// Errorf returns an Error with a code and status 500. The format supports %w.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// BadRequest returns an Error for an invalid payload: FAILED with status 400.
func BadRequest(err error) *Error {
	return &Error{Code: Failed, Status: http.StatusBadRequest, Err: err}
}

// Error returns the text of the reason, or the code if there is no reason.
func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.code())
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) code() Code {
	if e.Code == "" {
		return Failed
	}
	return e.Code
}

// errorOf returns the Error in err's chain, completed with its defaults. Without
// one, an exceeded deadline becomes TIMEOUT, and any other error FAILED.
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
