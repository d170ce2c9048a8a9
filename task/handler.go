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

// Handler runs tasks of a type. It is an [http.Handler], so that everything
// made for those works for tasks too. It is called with POST / and the whole
// [Task] as the JSON body; what it writes becomes the response's data. The
// request's context ends when the task's time is up or the task is aborted.
type Handler = http.Handler

// Request is what a typed handler is called with.
type Request[In any] struct {
	// Task is the whole task; never nil.
	Task *Task
	// Data is the task's payload, decoded.
	Data In
}

// HandlerFunc makes a [Handler] of a function that sees neither JSON nor HTTP
// (SPEC R2). The task's data is decoded into an In; null or absent data leaves
// it zero. A payload that does not fit is answered FAILED with status 400
// without calling fn. What fn returns is encoded as the response's data; an
// error becomes a failed response, with the code of an [Error] in its chain.
func HandlerFunc[In, Out any](fn func(context.Context, *Request[In]) (Out, error)) Handler {
	if fn == nil {
		panic("task: HandlerFunc of a nil function")
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

// Decode reads the task from a handler's request and its payload into data,
// which may be nil when only the task is wanted. Its error is an [Error] with
// status 400.
func Decode(r *http.Request, data any) (*Task, error) {
	t, ok := FromContext(r.Context())
	if !ok {
		var err error
		if t, err = read(r); err != nil {
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

// Peek finds the task that a request carries without using up the body: from
// the context, or else from the body, which can be read again afterwards.
func Peek(r *http.Request) (*Task, error) {
	if t, ok := FromContext(r.Context()); ok {
		return t, nil
	}
	if r.Body == nil {
		return nil, BadRequest(errors.New("the request has no body"))
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, BadRequest(fmt.Errorf("reading a task: %w", err))
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	t, err := decode(b)
	if err != nil {
		return nil, BadRequest(err)
	}
	return t, nil
}

func read(r *http.Request) (*Task, error) {
	if r.Body == nil {
		return nil, errors.New("the request has no body")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading a task: %w", err)
	}
	return decode(b)
}

func decode(b []byte) (*Task, error) {
	if len(b) > MaxBody {
		return nil, fmt.Errorf("the task is larger than %d bytes", MaxBody)
	}
	t := new(Task)
	if err := json.Unmarshal(b, t); err != nil {
		return nil, err
	}
	return t, nil
}

// WriteJSON answers with v as JSON and an HTTP status; 0 means 200. A v that
// cannot be encoded is answered as an error with status 500.
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
	_, _ = w.Write(b) // the reader may be gone; there is nobody left to tell
}

// errorBody is the answer of a handler that failed (PROTOCOL 1).
type errorBody struct {
	Message string `json:"error_msg"`
	Code    int    `json:"code"`
}

// WriteError answers with {"error_msg":"...","code":status} and the code of the
// [Error] in err's chain. An exceeded deadline is TIMEOUT, any other error
// FAILED with status 500.
func WriteError(w http.ResponseWriter, err error) {
	e := errorOf(err)
	w.Header().Set(CodeHeader, string(e.Code))
	WriteJSON(w, errorBody{Message: e.Error(), Code: e.Status}, e.Status)
}

// WriteBadRequest answers that the payload is wrong: FAILED, status 400.
func WriteBadRequest(w http.ResponseWriter, err error) { WriteError(w, BadRequest(err)) }
