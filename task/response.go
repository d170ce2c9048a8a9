package task

import (
	"encoding/json"
	"net/http"
)

// Code is the outcome of a task, as it travels.
type Code string

const (
	// OK means that the handler ran the task. The result may still be a failure: a
	// task whose step has exit code 1 is OK.
	OK Code = "OK"
	// Failed means that the handler could not run the task.
	Failed Code = "FAILED"
	// Timeout means that the task exceeded its own time-out.
	Timeout Code = "TIMEOUT"
	// Unknown means that the outcome of the task is not known.
	Unknown Code = "UNKNOWN"
	// RetryOnOtherDelegate asks the manager to give the task to another delegate.
	RetryOnOtherDelegate Code = "RETRY_ON_OTHER_DELEGATE"
	// AnsweredElsewhere means that another process answers the manager, such as a
	// legacy process beside the delegate (rule D9). The delegate sends no answer, so
	// this code never travels.
	AnsweredElsewhere Code = "ANSWERED_ELSEWHERE"
)

// Response is the answer to a task. The client encodes it in the form of the
// task's protocol.
type Response struct {
	// ID and Type are copied from the task.
	ID   string
	Type string
	Code Code
	// Error is the reason if Code is not OK, otherwise empty.
	Error string
	// Data is the body of the handler's answer, JSON by convention.
	Data json.RawMessage
}

// CodeHeader is the response header with which a handler sets a [Code] that
// differs from the meaning of its HTTP status. [WriteError] sets it.
const CodeHeader = "Dlite-Task-Code"

// CodeOf returns the outcome of an answer with the given status and header: the
// value of [CodeHeader] if it is set, OK for 2xx, TIMEOUT for 504, and otherwise
// FAILED. Status 0 means that the handler wrote no answer.
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
