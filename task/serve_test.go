package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func serve(t *testing.T, h http.HandlerFunc) (*task.Response, []byte) {
	t.Helper()
	return task.Serve(t.Context(), h, &task.Task{ID: "t", Type: "x"})
}

// docs/protocol.md 1: the request is POST / with the whole task as its body. Its
// context carries the task as well.
func TestHandlerGetsTheRequestOfTheProtocol(t *testing.T) {
	t.Parallel()
	var tk task.Task
	require.NoError(t, json.Unmarshal([]byte(`{"id":"t","type":"x","data":{"n":12345678901234567890},"new":1}`), &tk))
	var body []byte
	var r *http.Request
	resp, stack := task.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r = req
		body, _ = io.ReadAll(req.Body)
		_, _ = io.WriteString(w, `{"answer":1}`)
	}), &tk)

	assert.Equal(t, &task.Response{ID: "t", Type: "x", Code: task.OK, Data: json.RawMessage(`{"answer":1}`)}, resp)
	assert.Nil(t, stack)
	assert.Equal(t, http.MethodPost, r.Method)
	assert.Equal(t, "/", r.URL.Path)
	assert.Equal(t, "/", r.RequestURI)
	assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
	assert.EqualValues(t, -1, r.ContentLength, "unknown: the first read encodes the body")
	assert.Equal(t, `{"id":"t","type":"x","data":{"n":12345678901234567890},"new":1}`, string(body))
	got, ok := task.FromContext(r.Context())
	assert.True(t, ok)
	assert.Same(t, &tk, got)
}

// Rule P4: the handler's answer decides the code and the reason.
func TestAnswerDecidesTheOutcome(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<10)
	for name, tc := range map[string]struct {
		write  http.HandlerFunc
		code   task.Code
		reason string
		data   string
	}{
		"body alone":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("1")) }, task.OK, "", "1"},
		"no content":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, task.OK, "", ""},
		"empty write":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, task.OK, "", ""},
		"nothing":        {func(http.ResponseWriter, *http.Request) {}, task.Failed, "the handler wrote no answer", ""},
		"a header alone": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", "b") }, task.Failed, "the handler wrote no answer", ""},
		"hints alone":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103) }, task.Failed, "the handler wrote no answer", ""},
		"hints first": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(500)
		}, task.Failed, "the handler answered with status 500", ""},
		"status twice": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			w.WriteHeader(500)
		}, task.OK, "", ""},
		"300":             {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(300) }, task.Failed, "the handler answered with status 300", ""},
		"504":             {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(504) }, task.Timeout, "the handler answered with status 504", ""},
		"an error's body": {func(w http.ResponseWriter, _ *http.Request) { task.WriteBadRequest(w, errors.New("no")) }, task.Failed, "no", `{"error_msg":"no","code":400}`},
		"a text":          {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", 500) }, task.Failed, "the handler answered with status 500: sorry", "sorry\n"},
		"a page":          {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, 500) }, task.Failed, "the handler answered with status 500: " + long[:4<<10], long + "\n"},
		"code in a header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(task.CodeHeader, "UNKNOWN")
			w.WriteHeader(200)
		}, task.Unknown, "the handler answered with status 200", ""},
	} {
		resp, stack := serve(t, tc.write)
		assert.Equal(t, tc.code, resp.Code, name)
		assert.Equal(t, tc.reason, resp.Error, name)
		assert.Equal(t, tc.data, string(resp.Data), name)
		assert.Nil(t, stack, name)
	}
}

// Rule P4: a panic ends only its own task, and discards a partial answer.
func TestPanicIsAnsweredFailedWithItsStack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"text":       {func(http.ResponseWriter, *http.Request) { panic("boom") }, "boom"},
		"error":      {func(http.ResponseWriter, *http.Request) { panic(io.EOF) }, "EOF"},
		"nil":        {func(http.ResponseWriter, *http.Request) { panic(nil) }, "nil"},
		"abort":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "abort"},
		"after 200":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("late") }, "late"},
		"after data": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"half":`)); panic("late") }, "late"},
	} {
		resp, stack := serve(t, tc.handler)
		assert.Equal(t, task.Failed, resp.Code, name)
		assert.Contains(t, resp.Error, "panicked", name)
		assert.Contains(t, resp.Error, tc.reason, name)
		assert.Empty(t, resp.Data, name)
		assert.Contains(t, string(stack), "serve_test.go", name)
	}
}

// Rule P4: runtime.Goexit, as in FailNow, ends only the handler's goroutine.
func TestEndOfTheHandlersGoroutineIsAnsweredFailed(t *testing.T) {
	t.Parallel()
	resp, stack := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		runtime.Goexit()
	})
	assert.Equal(t, task.Failed, resp.Code)
	assert.Equal(t, "the handler ended its goroutine", resp.Error)
	assert.Nil(t, stack)
}

// Rule P4: a truncated answer fails the task, even if the handler ignores the error.
func TestTooLargeAnswerIsFailed(t *testing.T) {
	t.Parallel()
	chunk := make([]byte, task.MaxBody/2)
	var first, second, third error
	resp, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, first = w.Write(chunk)
		_, second = w.Write(chunk)
		_, third = w.Write([]byte("x"))
	})
	assert.NoError(t, errors.Join(first, second), "MaxBody itself fits")
	assert.Error(t, third)
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, "larger than")
	assert.Empty(t, resp.Data)
}

func TestTaskThatCannotBeEncodedIsFailed(t *testing.T) {
	t.Parallel()
	resp, _ := task.Serve(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		task.WriteBadRequest(w, err)
	}), &task.Task{ID: "t", Data: json.RawMessage("{")})
	assert.Equal(t, task.Failed, resp.Code)
	assert.Contains(t, resp.Error, "encoding a task")
}

// Rule P4: after the task's time-out every failure of the handler is TIMEOUT.
func TestFailingAfterTheDeadlineIsTimeout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		late http.HandlerFunc
		want task.Code
	}{
		"the context's error": {func(w http.ResponseWriter, r *http.Request) { task.WriteError(w, r.Context().Err()) }, task.Timeout},
		"any error":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, task.Timeout},
		"nothing":             {func(http.ResponseWriter, *http.Request) {}, task.Timeout},
		"panic":               {func(http.ResponseWriter, *http.Request) { panic("killed") }, task.Timeout},
		"a late success":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, task.OK},
		"a code of its own": {func(w http.ResponseWriter, _ *http.Request) {
			task.WriteError(w, task.Errorf(task.RetryOnOtherDelegate, "elsewhere"))
		}, task.RetryOnOtherDelegate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				resp, _ := task.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					tc.late(w, r)
				}), &task.Task{ID: "t"})
				assert.Equal(t, tc.want, resp.Code)
				assert.Equal(t, tc.want != task.OK, resp.Error != "")
			})
		})
	}
}

// An abort is not a time-out.
func TestFailingAfterACancellationIsFailed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	resp, _ := task.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task.WriteError(w, r.Context().Err())
	}), &task.Task{ID: "t"})
	assert.Equal(t, task.Failed, resp.Code)
}

func BenchmarkServe(b *testing.B) {
	h := task.HandlerFunc(func(_ context.Context, req *task.Request[input]) (input, error) { return req.Data, nil })
	tk := &task.Task{ID: "t", Type: "x", Data: json.RawMessage(`{"name":"benchmark"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if resp, _ := task.Serve(b.Context(), h, tk); resp.Code != task.OK {
			b.Fatal(resp.Error)
		}
	}
}
