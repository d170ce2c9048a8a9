package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/delegate-io/dlite/internal/answers"
)

// MaxBody is the size limit of a task and of a handler's answer, in bytes.
const MaxBody = 32 << 20

// Serve runs a task with a handler and returns the response. It returns when the
// handler returns, and never panics (rule P4). The code of the response is OK for
// a status of 200 to 299, and FAILED if the handler
//
//   - writes another status, or neither status nor body,
//   - writes more than [MaxBody] bytes,
//   - panics, or ends its goroutine.
//
// If the deadline of ctx has passed, FAILED becomes TIMEOUT. The second result is
// the stack of a panic, for the log, and otherwise nil.
func Serve(ctx context.Context, h Handler, t *Task) (resp *Response, stack []byte) {
	resp = &Response{ID: t.ID, Type: t.Type}
	w := answers.NewBuffer(MaxBody)
	stack, cause := answers.Call(h, w, newRequest(ctx, t))
	fillResponse(ctx, resp, w, cause)
	return resp, stack
}

func newRequest(ctx context.Context, t *Task) *http.Request {
	req := http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/"}, RequestURI: "/", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: &lazyBody{task: t}, ContentLength: -1,
	}
	return req.WithContext(NewContext(ctx, t)) // only this copy escapes to the heap
}

// lazyBody is a task as JSON. The first read encodes it, because most handlers
// take the task from their context and read no body.
type lazyBody struct {
	task *Task
	text *bytes.Reader
}

// Read implements [io.Reader].
func (b *lazyBody) Read(p []byte) (int, error) {
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
func (b *lazyBody) Close() error { return nil }

// fillResponse turns the recorded answer into the response.
func fillResponse(ctx context.Context, resp *Response, w *answers.Buffer, cause error) {
	switch {
	case cause != nil:
	case w.Status() == 0:
		cause = errors.New("the handler wrote no answer")
	default:
		cause = w.Err()
	}
	if cause != nil {
		resp.Code, resp.Error = Failed, cause.Error()
	} else {
		resp.Code, resp.Data = CodeOf(w.Status(), w.Header()), w.Body()
	}
	if resp.Code == OK || resp.Code == AnsweredElsewhere {
		return
	}
	if resp.Error == "" {
		resp.Error = failureReason(w)
	}
	if resp.Code == Failed && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		resp.Code = Timeout
	}
}

// failureReason returns the reason in the body of a failed answer.
func failureReason(w *answers.Buffer) string {
	const maxReason = 4 << 10 // the body may be a whole page
	var e errorBody
	if json.Unmarshal(w.Body(), &e) == nil && e.Message != "" {
		return e.Message
	}
	text := bytes.TrimSpace(w.Body())
	if len(text) == 0 {
		return fmt.Sprintf("the handler answered with status %d", w.Status())
	}
	return fmt.Sprintf("the handler answered with status %d: %s", w.Status(), text[:min(len(text), maxReason)])
}
