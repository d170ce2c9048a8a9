package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

// docs/protocol.md 1: status 204, an empty body, null and a null list all mean an
// empty list.
func TestAPollMayBeEmpty(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
	}{
		"204": {204, ""}, "empty": {200, ""}, "blank": {200, " \n"}, "null": {200, "null"}, "no list": {200, `{"later":[1]}`},
		"null list": {200, `{"delegateTaskEvents":null,"delegateRunnerEvents":null,"abortedTaskIds":null}`},
		"no ids":    {200, `{"delegateTaskEvents":[null,{"taskType":"A"}],"delegateRunnerEvents":[null,{"taskType":"A"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, p client.Option) {
				s := serve(t, always(tc.status, tc.body))
				got, err := connect(t, s.URL, p).Poll(within(t), "d", client.PollQuery{})
				require.NoError(t, err)
				assert.Empty(t, got.Events)
				assert.Empty(t, got.Aborted)
				assert.False(t, got.Held)
			})
		})
	}
}

func TestAPollReadsEventsAndAborts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		protocol client.Protocol
		body     string
		want     []task.Event
	}{
		"v1": {client.V1, `{"delegateTaskEvents":[{"accountId":"a","delegateTaskId":"1","sync":true,"taskType":"A","new":{}},
			{"delegateTaskId":"2"}],"abortedTaskIds":["3","4"],"other":1}`,
			[]task.Event{{TaskID: "1", TaskType: "A", Account: "a", Sync: true}, {TaskID: "2"}}},
		"v2": {client.V2, `{"delegateRunnerEvents":[{"accountId":"a","taskId":"1","runnerType":"R","taskType":"A","new":{}},
			{"taskId":"2"}],"abortedTaskIds":["3","4"],"other":1}`,
			[]task.Event{{TaskID: "1", TaskType: "A", Account: "a", RunnerType: "R"}, {TaskID: "2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, always(200, tc.body))
			got, err := connect(t, s.URL, client.WithProtocol(tc.protocol)).Poll(within(t), "d", client.PollQuery{})
			require.NoError(t, err)
			assert.Equal(t, &client.Pending{Events: tc.want, Aborted: []string{"3", "4"}}, got)
		})
	}
}

// Rule C7: the header reports that the manager holds polls. It is ignored unless
// the client asked for a wait: otherwise the poller would poll without a pause.
func TestAHeldPollHasACursor(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			w.Header().Set("Dlite-Cursor", "c7")
			answer(w, []int{200, 204}[n%2], "")
		})
		c := connect(t, s.URL, p)
		for range 2 {
			got, err := c.Poll(within(t), "d", client.PollQuery{Wait: time.Second})
			require.NoError(t, err)
			assert.Equal(t, &client.Pending{Held: true, Cursor: "c7"}, got)
		}
		got, err := c.Poll(within(t), "d", client.PollQuery{})
		require.NoError(t, err)
		assert.Equal(t, &client.Pending{}, got)
	})
}

// docs/protocol.md 1: several answers to an acquire mean that another delegate has
// the task.
func TestAnAcquireMayReturnNoTask(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
		only   string
	}{
		"204": {204, "", ""}, "empty": {200, "", ""}, "null": {200, "null\n", ""},
		"no list": {200, `{}`, "v2"}, "null list": {200, `{"requests":null}`, "v2"}, "empty list": {200, `{"requests":[]}`, "v2"},
	} {
		for version, p := range protocols {
			if tc.only != "" && tc.only != version {
				continue
			}
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				s := serve(t, always(tc.status, tc.body))
				got, err := connect(t, s.URL, client.WithProtocol(p)).Acquire(within(t), "d", event)
				require.NoError(t, err)
				assert.Nil(t, got)
				assert.Len(t, s.requests(), 1)
			})
		}
	}
}

// docs/protocol.md 1: the data is any JSON or absent, and unknown members survive.
func TestAcquireV1KeepsUnknownMembers(t *testing.T) {
	t.Parallel()
	s := serve(t, always(200, `{"id":"other","type":"A","data":{"n":12345678901234567890,"h":"<a>"},"async":true,"runnerResponse":true,
		"timeout":5000,"logging":{"token":"fake","abstractions":{"a":"b"}},"delegate":{"id":"d","instance_id":"i"},
		"capabilities":[1],"future":{"deep":[true]}}`))
	c := connect(t, s.URL)
	got, err := c.Acquire(within(t), "d", event)
	require.NoError(t, err)
	assert.Equal(t, "t", got.ID, "the manager waits for the answer under the event's id")
	assert.Equal(t, 5*time.Second, got.Timeout.Duration())
	assert.True(t, got.RunnerResponse)
	assert.Equal(t, "b", got.Logging.Abstractions["a"])
	out, err := json.Marshal(got)
	require.NoError(t, err)
	assert.Contains(t, string(out), `"future":{"deep":[true]}`)
	assert.Contains(t, string(out), `12345678901234567890`, "numbers keep their precision")

	null := serve(t, always(200, `{"id":"t","data":null}`))
	got, err = connect(t, null.URL).Acquire(within(t), "d", event)
	require.NoError(t, err)
	assert.Equal(t, "A", got.Type, "from the event")
	assert.Equal(t, "null", string(got.Data))
}

// docs/protocol.md 2: the client decodes base64, moves secrets and account into
// the task, and keeps unknown members.
func TestAcquireV2DecodesTheRequest(t *testing.T) {
	t.Parallel()
	b64 := func(s string) string { b, _ := json.Marshal([]byte(s)); return string(b) }
	s := serve(t, always(200, `{"requests":[{"id":"r","account":"a","new":1,"task":{"id":"t","type":"local_init","data":`+b64(`{"n":1}`)+`,
		"driver":"docker","config":`+b64(` {"c":2}`)+`,"forward":{"address":"https://x","certs":{"ca":"C"}},
		"logger":{"address":"https://l","key":"k","masks":["m"]},"future":[1]},
		"secrets":[{"id":"s1","type":"secret/static","data":`+b64(`{"v":"fake"}`)+`},{"id":"s2","type":"secret/vault/fetch","config":null}]}]}`))
	got, err := connect(t, s.URL, client.WithProtocol(client.V2)).Acquire(within(t), "d", event)
	require.NoError(t, err)
	assert.Equal(t, "a", got.Account)
	assert.JSONEq(t, `{"n":1}`, string(got.Data))
	assert.JSONEq(t, `{"c":2}`, string(got.Config))
	assert.Equal(t, "C", got.Forward.Certs.CA)
	assert.Equal(t, []string{"m"}, got.Logger.Masks)
	require.Len(t, got.Secrets, 2)
	assert.Equal(t, "s1", got.Secrets[0].ID)
	assert.JSONEq(t, `{"v":"fake"}`, string(got.Secrets[0].Data))
	assert.Nil(t, got.Secrets[1].Data)
	out, err := json.Marshal(got)
	require.NoError(t, err)
	assert.Contains(t, string(out), `"future":[1]`)
	assert.Contains(t, string(out), `"data":{"n":1}`)

	many := serve(t, always(200, `{"requests":[{"task":{"id":"x","type":"X"}},{"id":"t","task":{"id":"y","type":"Y"}}]}`))
	got, err = connect(t, many.URL, client.WithProtocol(client.V2)).Acquire(within(t), "d", event)
	require.NoError(t, err)
	assert.Equal(t, "Y", got.Type)
}

// Rule C6: the client retries an acquire whose answer is incomplete. The manager
// grants the task to the same delegate again.
func TestAnIncompleteAcquireIsRetried(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := map[string]string{"v1": `{"id":"t","type":"A"}`, "v2": `{"requests":[{"task":{"id":"t","type":"A"}}]}`}[name]
			s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
				switch n {
				case 1:
					breakOff(w, body[:10])
				case 2:
					answer(w, 200, body[:10]) // cut by a proxy that fixed the length
				default:
					answer(w, 200, body)
				}
			})
			got, err := connect(t, s.URL, client.WithProtocol(p)).Acquire(within(t), "d", event)
			require.NoError(t, err)
			assert.Equal(t, "t", got.ID)
			assert.Len(t, s.requests(), 3)
		})
	}
}

// If the manager granted a task that cannot be read, the error is ErrMalformed, so
// that the poller answers the task. The results of later attempts do not change
// that. The error does not quote the payload.
func TestAnUnreadableTaskIsMalformed(t *testing.T) {
	t.Parallel()
	secretData, _ := json.Marshal([]byte(`no JSON, fake-password`))
	for name, tc := range map[string]struct {
		protocol client.Protocol
		answer   func(w http.ResponseWriter, n int)
		shows    string
	}{
		"broken off": {client.V1, func(w http.ResponseWriter, _ int) { breakOff(w, `{"data":"fake-password`) }, "unexpected EOF"},
		"half a task": {client.V1, func(w http.ResponseWriter, _ int) { answer(w, 200, `{"data":"fake-password`) },
			"the body has 22 bytes of JSON, not quoted because they may contain secrets"},
		"no task":      {client.V1, func(w http.ResponseWriter, _ int) { answer(w, 200, `["fake-password"]`) }, "decoding a task"},
		"a web page":   {client.V1, func(w http.ResponseWriter, _ int) { answer(w, 200, `<html>Sign in</html>`) }, `the body begins with "<html>Sign in</html>"`},
		"then gone":    {client.V1, func(w http.ResponseWriter, n int) { answer(w, []int{404, 200, 404}[n%3], `{`) }, "unexpected end of JSON"},
		"then nothing": {client.V1, func(w http.ResponseWriter, n int) { answer(w, []int{204, 200, 204}[n%3], `{`) }, "unexpected end of JSON"},
		"then busy":    {client.V1, func(w http.ResponseWriter, n int) { answer(w, []int{503, 200, 503}[n%3], `{`) }, "unexpected end of JSON"},
		"no request":   {client.V2, func(w http.ResponseWriter, _ int) { answer(w, 200, `{"requests":[null]}`) }, "has no task"},
		"null task":    {client.V2, func(w http.ResponseWriter, _ int) { answer(w, 200, `{"requests":[{"task":null}]}`) }, "has no task"},
		"no base64": {client.V2, func(w http.ResponseWriter, _ int) {
			answer(w, 200, `{"requests":[{"task":{"data":"fake-password"}}]}`)
		}, "the task's data is not base64"},
		"no JSON inside": {client.V2, func(w http.ResponseWriter, _ int) {
			answer(w, 200, `{"requests":[{"task":{"config":`+string(secretData)+`}}]}`)
		}, "the task's config is not base64 of JSON"},
		"null secret": {client.V2, func(w http.ResponseWriter, _ int) {
			answer(w, 200, `{"requests":[{"task":{},"secrets":[{},null]}]}`)
		}, "secret task 1 is null"},
		"bad secret": {client.V2, func(w http.ResponseWriter, _ int) {
			answer(w, 200, `{"requests":[{"task":{},"secrets":[{"data":`+string(secretData)+`}]}]}`)
		}, "secret task 0: the task's data is not base64 of JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) { tc.answer(w, n) })
			got, err := connect(t, s.URL, client.WithProtocol(tc.protocol)).Acquire(within(t), "d", event)
			require.ErrorIs(t, err, client.ErrMalformed)
			assert.Nil(t, got)
			assert.False(t, errors.Is(err, client.ErrGone) || errors.Is(err, client.ErrRetryable))
			assert.ErrorContains(t, err, tc.shows)
			assert.NotContains(t, err.Error(), "fake-password")
		})
	}
}

// Rule C6: a complete body that is not JSON is an error with an excerpt, and is
// not retried. The other calls do not crash on it.
func TestMalformedAnswersAreErrorsWithAnExcerpt(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"page": "<html>" + strings.Repeat("é", 1000), "list": `[]`, "string": `"x"`, "number": `7`,
		"wrong list": `{"delegateTaskEvents":7,"delegateRunnerEvents":7,"resource":7}`, "half": `{"delegateTaskEvents":[{`,
		"bytes": "\xff\xfe\x00", "deep": strings.Repeat("[", 100000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, p client.Option) {
				s := serve(t, always(200, body))
				c := connect(t, s.URL, p)
				_, err := c.Poll(within(t), "d", client.PollQuery{})
				require.ErrorIs(t, err, client.ErrMalformed)
				assert.ErrorContains(t, err, "the body begins with")
				assert.Less(t, len(err.Error()), 1000)
				assert.Len(t, s.requests(), 1)
				_, err = c.Register(within(t), &client.Registration{})
				require.ErrorIs(t, err, client.ErrMalformed)
				require.NoError(t, c.Respond(within(t), "d", tsk, done), "the body of its answer does not matter")
			})
		})
	}
	s := serve(t, always(200, `{"resource":{}}`))
	_, err := connect(t, s.URL).Register(within(t), &client.Registration{})
	require.ErrorIs(t, err, client.ErrMalformed)
	assert.ErrorContains(t, err, "the answer has no delegate id")
}

// Rule C6: an answer above the limit is an error and is not retried, with and
// without a Content-Length. A task that is too large was granted nevertheless.
func TestAnswersAboveTheLimitAreErrors(t *testing.T) {
	t.Parallel()
	const limit = 1000
	padded := func(size int) string { return `{"id":"t","type":"A"}` + strings.Repeat(" ", size-21) }
	for name, chunked := range map[string]bool{"with a length": false, "in chunks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			size := limit
			s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				if chunked {
					_ = http.NewResponseController(w).Flush()
				}
				answer(w, 200, padded(size))
			})
			c := connect(t, s.URL, client.WithMaxBody(limit))
			_, err := c.Acquire(within(t), "d", event)
			require.NoError(t, err, "the limit itself is allowed")

			size++
			_, err = c.Acquire(within(t), "d", event)
			require.ErrorIs(t, err, client.ErrTooLarge)
			require.ErrorIs(t, err, client.ErrMalformed)
			assert.False(t, errors.Is(err, client.ErrRetryable))
			assert.Len(t, s.requests(), 2)
		})
	}
}

// Rule C6: the client reads an endless answer only up to the limit, and closes the
// connection.
func TestAnEndlessAnswerIsReadUpToTheLimit(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		ended := make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			defer close(ended)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		})
		_, err := connect(t, s.URL, p, client.WithMaxBody(100_000)).Poll(within(t), "d", client.PollQuery{})
		require.ErrorIs(t, err, client.ErrTooLarge)
		select {
		case <-ended:
		case <-within(t).Done():
			t.Fatal("the connection stays open")
		}
	})
}

// Rule C6: the client refuses a body above the limit before it sends anything.
func TestRequestsAboveTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, always(200, ""))
		c := connect(t, s.URL, p, client.WithMaxBody(1000))
		err := c.Respond(within(t), "d", tsk, &task.Response{Code: task.OK, Data: bytes.Repeat([]byte("a"), 1000)})
		require.ErrorIs(t, err, client.ErrTooLarge)
		assert.False(t, errors.Is(err, client.ErrRetryable))
		assert.Empty(t, s.requests())
	})
}
