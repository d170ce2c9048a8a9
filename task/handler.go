package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Handler runs tasks of a type. The request is POST / with the whole [Task] as
// its JSON body. The handler's answer becomes the data of the [Response]. The
// context of the request ends when the task times out or is aborted.
type Handler = http.Handler

// Request is the argument of a typed handler.
type Request[In any] struct {
	// Task is the whole task; never nil.
	Task *Task
	// Data is the decoded payload.
	Data In
}

// HandlerFunc makes a [Handler] of a function (rule R2). It decodes the task's
// data into an In; null or absent data leaves the zero value. If decoding fails,
// the task ends FAILED with status 400, and fn is not called. The result of fn
// becomes the data of the response. An error of fn becomes a failed response with
// the code of the [Error] in its chain. HandlerFunc panics if fn is nil.
func HandlerFunc[In, Out any](fn func(context.Context, *Request[In]) (Out, error)) Handler {
	if fn == nil {
		panic("task: the function of HandlerFunc is nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req Request[In]
		var err error
		if req.Task, err = Decode(r, &req.Data); err != nil {
			WriteError(w, err)
			return
		}
		out, err := fn(r.Context(), &req)
		if err != nil {
			WriteError(w, err)
			return
		}
		WriteJSON(w, out, http.StatusOK)
	})
}

// Decode returns the task of a handler's request, from its context or else from its
// body, and decodes its payload into data. If data is nil, Decode ignores the payload.
// The body can still be read afterwards. The error is an [Error] with status 400. If
// only the payload is invalid, Decode returns the task as well.
func Decode(r *http.Request, data any) (*Task, error) {
	t, ok := FromContext(r.Context())
	if !ok {
		var err error
		if t, err = readTask(r); err != nil {
			return nil, BadRequest(err)
		}
	}
	if data != nil && len(t.Data) > 0 {
		if err := json.Unmarshal(t.Data, data); err != nil {
			return t, BadRequest(fmt.Errorf("decoding the data of task %s (%s): %w", t.ID, t.Type, err))
		}
	}
	return t, nil
}

func readTask(r *http.Request) (*Task, error) {
	if r.Body == nil {
		return nil, errors.New("the request has no body")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return decodeTask(b)
}

func decodeTask(b []byte) (*Task, error) {
	if len(b) > MaxBody {
		return nil, fmt.Errorf("the task is larger than %d bytes", MaxBody)
	}
	t := new(Task)
	if err := json.Unmarshal(b, t); err != nil {
		return nil, err
	}
	return t, nil
}

// WriteJSON answers with v as JSON and an HTTP status. Status 0 means 200. If v
// cannot be encoded, WriteJSON answers with that error and status 500.
func WriteJSON(w http.ResponseWriter, v any, status int) {
	b, err := json.Marshal(v)
	if err != nil {
		WriteError(w, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	if status == 0 {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a failed write has no recipient for an error
}

// errorBody is the body of a failed answer (docs/protocol.md 1).
type errorBody struct {
	Message string `json:"error_msg"`
	Code    int    `json:"code"`
}

// WriteError answers with {"error_msg":"...","code":status}, and with the code of
// the [Error] in err's chain. Without an Error, an exceeded deadline is TIMEOUT
// with status 504, and any other error is FAILED with status 500.
func WriteError(w http.ResponseWriter, err error) {
	e := errorOf(err)
	w.Header().Set(CodeHeader, string(e.Code))
	WriteJSON(w, errorBody{Message: e.Error(), Code: e.Status}, e.Status)
}

// WriteBadRequest answers that the payload is invalid: FAILED with status 400.
func WriteBadRequest(w http.ResponseWriter, err error) { WriteError(w, BadRequest(err)) }
