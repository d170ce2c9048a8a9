package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type input struct {
	Name string `json:"name"`
}

func request(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
}

// answerOf calls a handler over plain HTTP and returns its answer.
func answerOf(t *testing.T, h http.Handler, body string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, request(t, strings.NewReader(body)))
	return rec
}

// Rule R2: the function sees neither JSON nor HTTP.
func TestTypedHandlerGetsTaskAndPayload(t *testing.T) {
	t.Parallel()
	var got task.Request[input]
	h := task.HandlerFunc(func(_ context.Context, req *task.Request[input]) (map[string]int, error) {
		got = *req
		return map[string]int{"length": len(req.Data.Name)}, nil
	})
	rec := answerOf(t, h, `{"id":"t","type":"x","data":{"name":"abc"},"new":1}`)

	assert.Equal(t, http.StatusOK, rec.Code)
	assert.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	assert.JSONEq(t, `{"length":3}`, rec.Body.String())
	assert.Equal(t, input{"abc"}, got.Data)
	assert.Equal(t, "t", got.Task.ID)
}

// Rule R2: absent and null payloads leave the zero value.
func TestTypedHandlerTakesAbsentAndNullData(t *testing.T) {
	t.Parallel()
	h := task.HandlerFunc(func(_ context.Context, req *task.Request[input]) (input, error) { return req.Data, nil })
	for _, body := range []string{`{"id":"t"}`, `{"id":"t","data":null}`} {
		assert.JSONEq(t, `{"name":""}`, answerOf(t, h, body).Body.String())
	}
	out := task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return nil, nil })
	assert.Equal(t, "null", answerOf(t, out, `{}`).Body.String(), "nil is a valid answer")
}

// Rule R2: an invalid payload does not reach the function.
func TestTypedHandlerRefusesAnInvalidPayload(t *testing.T) {
	t.Parallel()
	h := task.HandlerFunc(func(context.Context, *task.Request[input]) (any, error) {
		t.Error("called")
		return nil, nil
	})
	for _, body := range []string{`{"id":"t","type":"x","data":[]}`, `{"id":"t","data":{"name":5}}`, `<html>`, ``} {
		rec := answerOf(t, h, body)
		assert.Equal(t, http.StatusBadRequest, rec.Code, body)
		assert.Equal(t, "FAILED", rec.Header().Get(task.CodeHeader))
		assert.Contains(t, rec.Body.String(), `"code":400`)
	}
	rec := answerOf(t, h, `{"id":"t9","type":"x","data":[]}`)
	assert.Contains(t, rec.Body.String(), "task t9 (x)", "the message names the task")
}

// Rules R2, P4: the error decides code and status, also if it is wrapped.
func TestTypedHandlersErrorDecidesTheCode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err     error
		code    task.Code
		status  int
		message string
	}{
		"any error":        {errors.New("no disk"), task.Failed, 500, "no disk"},
		"Errorf":           {task.Errorf(task.RetryOnOtherDelegate, "full: %w", io.EOF), task.RetryOnOtherDelegate, 500, "full: EOF"},
		"wrapped":          {fmt.Errorf("starting: %w", task.Errorf(task.Unknown, "lost it")), task.Unknown, 500, "starting: lost it"},
		"bad request":      {task.BadRequest(errors.New("no name")), task.Failed, 400, "no name"},
		"own status":       {&task.Error{Status: 409, Err: errors.New("busy")}, task.Failed, 409, "busy"},
		"zero Error":       {&task.Error{}, task.Failed, 500, "FAILED"},
		"code alone":       {&task.Error{Code: task.Timeout}, task.Timeout, 500, "TIMEOUT"},
		"deadline":         {fmt.Errorf("running: %w", context.DeadlineExceeded), task.Timeout, 504, "running: context deadline exceeded"},
		"cancelled":        {context.Canceled, task.Failed, 500, "context canceled"},
		"Error beats time": {task.Errorf(task.Failed, "%w", context.DeadlineExceeded), task.Failed, 500, "context deadline exceeded"},
	} {
		h := task.HandlerFunc(func(context.Context, *task.Request[any]) (string, error) { return "ignored", tc.err })
		rec := answerOf(t, h, `{"id":"t","type":"x"}`)
		assert.Equal(t, tc.status, rec.Code, name)
		assert.Equal(t, string(tc.code), rec.Header().Get(task.CodeHeader), name)
		assert.JSONEq(t, fmt.Sprintf(`{"error_msg":%q,"code":%d}`, tc.message, tc.status), rec.Body.String(), name)

		resp, _ := task.Serve(t.Context(), h, &task.Task{ID: "t", Type: "x"})
		assert.Equal(t, tc.code, resp.Code, name)
		assert.Equal(t, tc.message, resp.Error, name)
	}
}

func TestErrorCanBeUnwrapped(t *testing.T) {
	t.Parallel()
	err := task.Errorf(task.Failed, "reading: %w", io.EOF)
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "reading: EOF", err.Error())
	assert.NoError(t, (&task.Error{}).Unwrap())
}

func TestHandlerFuncOfNilPanicsAtOnce(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { task.HandlerFunc[any, any](nil) })
}

func TestTypedHandlerWhoseOutputCannotBeEncodedFails(t *testing.T) {
	t.Parallel()
	h := task.HandlerFunc(func(context.Context, *task.Request[any]) (any, error) { return func() {}, nil })
	rec := answerOf(t, h, `{}`)
	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.Contains(t, rec.Body.String(), "encoding the answer")
}

func TestDecodeReadsFromTheContextOrElseTheBody(t *testing.T) {
	t.Parallel()
	var in input
	got, err := task.Decode(request(t, strings.NewReader(`{"id":"body","data":{"name":"n"}}`)), &in)
	require.NoError(t, err)
	assert.Equal(t, "body", got.ID)
	assert.Equal(t, "n", in.Name)

	r := request(t, strings.NewReader(`{"id":"body"}`))
	r = r.WithContext(task.NewContext(r.Context(), &task.Task{ID: "context", Data: []byte(`{"name":"c"}`)}))
	got, err = task.Decode(r, &in)
	require.NoError(t, err)
	assert.Equal(t, "context", got.ID)
	assert.Equal(t, "c", in.Name)

	got, err = task.Decode(r, nil)
	require.NoError(t, err)
	assert.Equal(t, "context", got.ID)
}

// The error of Decode has status 400, and the caller still gets the task.
func TestDecodeOfAnInvalidPayloadStillReturnsTheTask(t *testing.T) {
	t.Parallel()
	var in input
	got, err := task.Decode(request(t, strings.NewReader(`{"id":"t","data":5}`)), &in)
	var e *task.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, http.StatusBadRequest, e.Status)
	assert.Equal(t, "t", got.ID)
}

func TestReadingATaskFailsWith400(t *testing.T) {
	t.Parallel()
	tooLarge := func() io.Reader {
		return io.MultiReader(strings.NewReader(`{"id":"`), strings.NewReader(strings.Repeat("a", task.MaxBody)), strings.NewReader(`"}`))
	}
	for name, tc := range map[string]struct {
		body func() io.Reader
		want string
	}{
		"no body":   {nil, "no body"},
		"no JSON":   {func() io.Reader { return strings.NewReader("x") }, "invalid character"},
		"broken":    {func() io.Reader { return iotest.ErrReader(errors.New("reset")) }, "reading a task: reset"},
		"too large": {tooLarge, "larger than"},
	} {
		r := request(t, nil)
		r.Body = nil
		if tc.body != nil {
			r.Body = io.NopCloser(tc.body())
		}
		_, err := task.Decode(r, nil)
		var e *task.Error
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, http.StatusBadRequest, e.Status, name)
		assert.ErrorContains(t, err, tc.want, name)
	}
}

func TestDecodeKeepsTheBodyReadable(t *testing.T) {
	t.Parallel()
	const body = `{"id":"t","type":"x", "data": {"spaces":  1}}`
	r := request(t, strings.NewReader(body))
	for range 2 {
		got, err := task.Decode(r, nil)
		require.NoError(t, err)
		assert.Equal(t, "t", got.ID)
	}
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Equal(t, body, string(b))

	want := &task.Task{ID: "context"}
	got, err := task.Decode(r.WithContext(task.NewContext(r.Context(), want)), nil)
	require.NoError(t, err)
	assert.Same(t, want, got)
}

func TestFromContextWithoutATask(t *testing.T) {
	t.Parallel()
	_, ok := task.FromContext(t.Context())
	assert.False(t, ok)
}

func TestWriteJSONAndErrors(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	task.WriteJSON(rec, []int{1}, 0)
	assert.Equal(t, http.StatusOK, rec.Code)
	assert.Equal(t, "[1]", rec.Body.String())
	assert.Empty(t, rec.Header().Get(task.CodeHeader))

	rec = httptest.NewRecorder()
	task.WriteJSON(rec, "made", http.StatusCreated)
	assert.Equal(t, http.StatusCreated, rec.Code)

	rec = httptest.NewRecorder()
	task.WriteBadRequest(rec, errors.New("no name"))
	assert.Equal(t, http.StatusBadRequest, rec.Code)
	assert.JSONEq(t, `{"error_msg":"no name","code":400}`, rec.Body.String())
}

func TestCodeOfTheHeadOfAnAnswer(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]task.Code{
		0: task.Failed, 199: task.Failed, 200: task.OK, 204: task.OK, 299: task.OK, 300: task.Failed, 404: task.Failed,
		500: task.Failed, 503: task.Failed, 504: task.Timeout,
	} {
		assert.Equal(t, want, task.CodeOf(status, http.Header{}), "%d", status)
		assert.Equal(t, task.Unknown, task.CodeOf(status, http.Header{task.CodeHeader: {"UNKNOWN"}}), "%d", status)
	}
}
