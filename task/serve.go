package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
)

// MaxBody bounds a task and a handler's answer, in bytes. More is an error.
const MaxBody = 32 << 20

// Serve runs a task through a handler and turns what the handler did into a
// response. It returns when the handler does and never panics (SPEC P4):
//
//   - a status outside 200-299, an answer over [MaxBody], a panic and a handler
//     that ended its goroutine are FAILED;
//   - a handler that wrote neither status nor body is FAILED;
//   - when ctx's deadline passed while a handler that failed ran, it is TIMEOUT.
//
// The second result is the panic's stack, for the log; it is nil otherwise.
func Serve(ctx context.Context, h Handler, t *Task) (resp *Response, stack []byte) {
	resp = &Response{ID: t.ID, Type: t.Type}
	w := NewBuffer()
	stack, cause := Call(h, w, newRequest(TrackOutcome(ctx), t))
	w.finish(ctx, resp, cause)
	return resp, stack
}

func newRequest(ctx context.Context, t *Task) *http.Request {
	req := http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/"}, RequestURI: "/", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: &body{task: t}, ContentLength: -1,
	}
	return req.WithContext(NewContext(ctx, t)) // the one copy that leaves the stack
}

// body is the task as JSON, encoded when somebody reads it: most handlers find
// the task in their context.
type body struct {
	task *Task
	text *bytes.Reader
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.text == nil {
		text, err := json.Marshal(b.task)
		if err != nil {
			return 0, err
		}
		b.text = bytes.NewReader(text)
	}
	return b.text.Read(p)
}

// Close implements [io.Closer].
func (b *body) Close() error { return nil }

// Call runs a handler and returns when the handler does. It never panics: a panic
// becomes an error with its stack. The handler runs on its own goroutine, so one
// that ends its goroutine ([runtime.Goexit], a test's FailNow) becomes an error
// without a stack.
func Call(h Handler, w http.ResponseWriter, r *http.Request) (stack []byte, cause error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			cause = errors.New("the handler ended its goroutine")
			if p := recover(); p != nil { // panic(nil) is a value here, too
				stack, cause = debug.Stack(), fmt.Errorf("the handler panicked: %v", p)
			}
		}()
		h.ServeHTTP(w, r)
		returned = true
	}()
	<-done
	return stack, cause
}

// finish turns what was recorded into the response.
func (w *Buffer) finish(ctx context.Context, resp *Response, cause error) {
	switch {
	case cause != nil:
	case w.status == 0:
		cause = errors.New("the handler wrote no answer")
	case w.tooLarge:
		cause = errTooLarge
	}
	if cause != nil {
		resp.Code, resp.Error = Failed, cause.Error()
	} else {
		resp.Code, resp.Data = CodeOf(w.status, w.header), w.body.Bytes()
	}
	if resp.Code == OK || resp.Code == AnsweredElsewhere {
		return
	}
	if resp.Error == "" {
		resp.Error = w.reason()
	}
	if resp.Code == Failed && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		resp.Code = Timeout
	}
}

// reason is what a handler that answered with an error says about it.
func (w *Buffer) reason() string {
	const most = 4 << 10 // an error page is no reason
	var e errorBody
	if json.Unmarshal(w.body.Bytes(), &e) == nil && e.Message != "" {
		return e.Message
	}
	text := bytes.TrimSpace(w.body.Bytes())
	if len(text) == 0 {
		return fmt.Sprintf("the handler answered with status %d", w.status)
	}
	return fmt.Sprintf("the handler answered with status %d: %s", w.status, text[:min(len(text), most)])
}
