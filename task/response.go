package task

import (
	"encoding/json"
	"net/http"
)

// Code is the outcome of a task as the wire knows it.
type Code string

const (
	// OK means that the handler did its work. What the work found may still be
	// a failure: a step with exit code 1 is an OK task.
	OK Code = "OK"
	// Failed means that the handler could not do its work.
	Failed Code = "FAILED"
	// Timeout means that the task's own time-out ended it.
	Timeout Code = "TIMEOUT"
	// Unknown means that nobody can tell how the task ended.
	Unknown Code = "UNKNOWN"
	// RetryOnOtherDelegate asks the manager to hand the task to another delegate.
	RetryOnOtherDelegate Code = "RETRY_ON_OTHER_DELEGATE"
	// AnsweredElsewhere means that somebody else answers the manager, as a legacy
	// process next to the delegate does (SPEC D9): the task has no answer of ours. No
	// wire knows it.
	AnsweredElsewhere Code = "ANSWERED_ELSEWHERE"
)

// Response is the answer to a task. The client gives it the form that the
// task's protocol wants.
type Response struct {
	// ID and Type are the task's.
	ID   string
	Type string
	Code Code
	// Error says why Code is not OK; empty otherwise.
	Error string
	// Data is what the handler wrote, JSON by convention.
	Data json.RawMessage
}

// Fail is a response that carries no data but the reason err.
func Fail(t *Task, code Code, err error) *Response {
	return &Response{ID: t.ID, Type: t.Type, Code: code, Error: err.Error()}
}

// CodeHeader is the response header by which a handler sets a [Code] other than
// what its HTTP status stands for. [WriteError] sets it.
const CodeHeader = "Dlite-Task-Code"

// CodeOf is the outcome that the head of a handler's answer stands for: what
// [CodeHeader] says where it is set, otherwise 2xx is OK, 504 TIMEOUT and the
// rest FAILED, also 0 for an answer that was never written.
func CodeOf(status int, h http.Header) Code {
	if c := Code(h.Get(CodeHeader)); c != "" {
		return c
	}
	switch {
	case status >= 200 && status <= 299:
		return OK
	case status == http.StatusGatewayTimeout:
		return Timeout
	default:
		return Failed
	}
}
