package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/task"
)

var protocols = map[string]client.Protocol{"v1": client.V1, "v2": client.V2}

// both runs a test for each protocol.
func both(t *testing.T, f func(t *testing.T, p client.Option)) {
	t.Helper()
	for name, p := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, client.WithProtocol(p))
		})
	}
}

var (
	event = task.Event{TaskID: "t", TaskType: "A"}
	tsk   = &task.Task{ID: "t", Type: "A"}
	done  = &task.Response{Code: task.OK, Data: []byte(`{"x":1}`)}
)

// Rule C2: the client retries 429, 500 and 502-504, and no other status. errors.Is
// classifies each status.
func TestStatusesDecideAboutRetries(t *testing.T) {
	t.Parallel()
	kinds := []error{client.ErrUnauthorized, client.ErrGone, client.ErrConflict, client.ErrRetryable, client.ErrMalformed, client.ErrTooLarge}
	for status, tc := range map[int]struct {
		attempts int
		kind     error
	}{
		400: {1, nil}, 401: {1, client.ErrUnauthorized}, 403: {1, client.ErrUnauthorized}, 404: {1, client.ErrGone},
		408: {1, nil}, 409: {1, client.ErrConflict}, 410: {1, client.ErrGone}, 413: {1, client.ErrTooLarge}, 422: {1, nil},
		429: {3, client.ErrRetryable}, 500: {3, client.ErrRetryable}, 501: {1, nil}, 502: {3, client.ErrRetryable},
		503: {3, client.ErrRetryable}, 504: {3, client.ErrRetryable}, 505: {1, nil}, 300: {1, nil}, 304: {1, nil},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, p client.Option) {
				s := serve(t, always(status, `{"error_msg":"because","code":7}`))
				c := connectAs(t, s.URL, "", client.WithToken("fake-ready-made-token"), p)
				_, err := c.Acquire(within(t), "d", event)
				var e *client.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, status, e.Status)
				assert.Len(t, s.requests(), tc.attempts)
				for _, kind := range kinds {
					assert.Equal(t, slices.Contains([]error{tc.kind}, kind), errors.Is(err, kind), kind)
				}
				if status >= 400 {
					assert.Equal(t, "because", e.Message)
				}
			})
		})
	}
}

// Rule C2: a retry succeeds and sends the whole body again.
func TestRetriesSendTheWholeBodyAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			switch n {
			case 1:
				answer(w, 503, "")
			case 2:
				panic(http.ErrAbortHandler) // no answer at all
			default:
				answer(w, 200, "")
			}
		})
		c := connect(t, s.URL, p)
		require.NoError(t, c.Respond(within(t), "d", tsk, done))
		seen := s.requests()
		require.Len(t, seen, 3)
		assert.NotEmpty(t, seen[0].Body)
		assert.Equal(t, seen[0].Body, seen[1].Body)
		assert.Equal(t, seen[0].Body, seen[2].Body)
	})
}

// Rule C2: the client retries when it cannot reach the manager.
func TestConnectionErrorsAreRetried(t *testing.T) {
	t.Parallel()
	tries := 0
	c := connect(t, "http://manager.invalid", client.WithTransport(roundTripper(func(*http.Request) (*http.Response, error) {
		tries++
		return nil, errors.New("connection refused")
	})))
	_, err := c.Register(within(t), &client.Registration{})
	require.ErrorIs(t, err, client.ErrRetryable)
	assert.Equal(t, 3, tries)
	assert.Equal(t, "POST /api/agent/delegates/register: connection refused", err.Error(), "no query")
}

// Rule P7: a heartbeat is attempted once, because the next heartbeat follows.
func TestAHeartbeatIsAttemptedOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, always(503, "busy"))
	err := connect(t, s.URL).Heartbeat(within(t), &client.Registration{DelegateID: "d"})
	require.ErrorIs(t, err, client.ErrRetryable)
	assert.Len(t, s.requests(), 1)
}

// Rule C3: an answer is retried until the context ends, more often than other
// calls.
func TestAnAnswerIsRetriedUntilItIsDelivered(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		const needed = 20
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			if n < needed {
				answer(w, 500, "")
			}
		})
		require.NoError(t, connect(t, s.URL, p).Respond(within(t), "d", tsk, done))
		assert.Len(t, s.requests(), needed)
	})
}

// Rule C3: a 4xx status ends the attempts to deliver an answer.
func TestAnAnswerThatIsRefusedIsNotRetried(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, always(404, ""))
		require.ErrorIs(t, connect(t, s.URL, p).Respond(within(t), "d", tsk, done), client.ErrGone)
		assert.Len(t, s.requests(), 1)
	})
}

// Rule C2: the back-off ends at once with the context. The error has the error of
// the context and that of the previous attempt.
func TestBackOffEndsWithTheContext(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		ctx, cancel := context.WithCancel(within(t))
		s := serve(t, always(503, ""))
		hour := client.Retries{MinWait: time.Hour, MaxWait: time.Hour}
		backingOff := func(r *http.Request) (*http.Response, error) {
			resp, err := http.DefaultTransport.RoundTrip(r)
			time.AfterFunc(10*time.Millisecond, cancel) // the pause has begun, or is about to
			return resp, err
		}
		c := connect(t, s.URL, p, client.WithRetries(hour), client.WithTransport(roundTripper(backingOff)))
		t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
		err := c.Respond(ctx, "d", tsk, done)
		require.ErrorIs(t, err, context.Canceled)
		var e *client.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 503, e.Status)
		assert.NotErrorIs(t, err, client.ErrRetryable, "the manager has ended the task")
		assert.Len(t, s.requests(), 1)
	})
}

// Rule C2: a caller that repeats retryable calls must not repeat a call that it
// cancelled. It may repeat a call that exceeded a deadline.
func TestACancelledCallIsNotRetryable(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		hang := connect(t, "http://manager.invalid", p, client.WithTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})))
		ctx, cancel := context.WithCancel(within(t))
		time.AfterFunc(time.Millisecond, cancel)
		_, err := hang.Poll(ctx, "d", client.PollQuery{})
		require.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, client.ErrRetryable)

		ctx, cancel = context.WithTimeout(within(t), time.Millisecond)
		defer cancel()
		_, err = hang.Poll(ctx, "d", client.PollQuery{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, client.ErrRetryable)
	})
}

// Rule C3: a server that does not answer, or stops within an answer, costs the
// time-out of one attempt.
func TestEveryAttemptHasATimeout(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]func(w http.ResponseWriter){
		"before the head": func(http.ResponseWriter) {},
		"in the body": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"delegateTaskEvents":[`)
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, p client.Option) {
				s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
					if n < 3 {
						delay(w)
						<-r.Context().Done() // until the client gives up
						return
					}
					answer(w, 200, `{}`)
				})
				c := connect(t, s.URL, p, client.WithTimeout(100*time.Millisecond))
				_, err := c.Poll(within(t), "d", client.PollQuery{})
				require.NoError(t, err)
				assert.Len(t, s.requests(), 3)
			})
		})
	}
}

// Rule C7: the time-out of a poll that waits is extended by the wait.
func TestAPollThatWaitsHasALongerTimeout(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			select {
			case <-time.After(300 * time.Millisecond): // three time-outs
			case <-r.Context().Done():
			}
			answer(w, 200, `{}`)
		})
		c := connect(t, s.URL, p, client.WithTimeout(100*time.Millisecond))
		_, err := c.Poll(within(t), "d", client.PollQuery{Wait: time.Second})
		require.NoError(t, err)
		assert.Len(t, s.requests(), 1)
	})
}

// docs/protocol.md 1: the client does not follow redirects. The error has the
// target, and the target gets no token.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, always(200, `{}`))
	s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		http.Redirect(w, r, elsewhere.URL+"/there?token=x", http.StatusTemporaryRedirect)
	})
	_, err := connect(t, s.URL).Poll(within(t), "d", client.PollQuery{})
	require.ErrorContains(t, err, "307 Temporary Redirect: the client does not follow redirects: set the endpoint to the target, "+elsewhere.URL+"/there")
	assert.NotContains(t, err.Error(), "token=x")
	assert.False(t, errors.Is(err, client.ErrRetryable))
	assert.Empty(t, elsewhere.requests())
}

// docs/protocol.md 1: if the manager refuses an issued token, the client issues a
// new one, once. The clock of the manager may have changed.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p client.Option) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 1 {
				answer(w, 401, "")
				return
			}
			answer(w, 200, `{}`)
		})
		c := connect(t, s.URL, p)
		_, err := c.Poll(within(t), "d", client.PollQuery{})
		require.NoError(t, err)
		seen := s.requests()
		require.Len(t, seen, 2)
		assertToken(t, seen[1])
		assert.NotEqual(t, seen[0].Header.Get("Authorization"), seen[1].Header.Get("Authorization"))

		refusing := serve(t, always(401, "no"))
		_, err = connect(t, refusing.URL, p).Poll(within(t), "d", client.PollQuery{})
		require.ErrorIs(t, err, client.ErrUnauthorized)
		assert.Len(t, refusing.requests(), 2)
	})
}

// docs/protocol.md 1: the client renews a token after half of its lifetime of 20
// minutes.
func TestATokenIsReplacedAtHalfItsLife(t *testing.T) {
	t.Parallel()
	s := serve(t, always(200, `{}`))
	var mu sync.Mutex
	now := time.Now()
	c := connect(t, s.URL, client.WithClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return now }))
	for _, step := range []time.Duration{0, 10*time.Minute - time.Second, time.Second} {
		mu.Lock()
		now = now.Add(step)
		mu.Unlock()
		_, err := c.Poll(within(t), "d", client.PollQuery{})
		require.NoError(t, err)
	}
	seen := s.requests()
	assert.Equal(t, seen[0].Header.Get("Authorization"), seen[1].Header.Get("Authorization"))
	assert.NotEqual(t, seen[1].Header.Get("Authorization"), seen[2].Header.Get("Authorization"))
}

// Rule S3: if an error page quotes the request, the error contains no credentials.
func TestErrorsHideCredentials(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"refused": 400, "malformed": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				answer(w, status, "you sent "+fakeSecret+" and "+r.Header.Get("Authorization")+"\x1b[31m\n\tsecond line")
			})
			_, err := connect(t, s.URL).Poll(within(t), "d", client.PollQuery{})
			require.Error(t, err)
			token := strings.TrimPrefix(s.requests()[0].Header.Get("Authorization"), "Delegate ")
			assert.NotContains(t, err.Error(), token[:40])
			assert.NotContains(t, err.Error(), fakeSecret)
			assert.NotContains(t, err.Error(), "accountId")
			assert.NotContains(t, err.Error(), "\x1b")
			assert.Contains(t, err.Error(), "you sent [secret]")
		})
	}
}

// Sequential calls share one connection, also after errors, and parallel calls
// keep theirs. An executor that dials for each task is slow and exhausts the
// ports.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		answer(w, []int{200, 404, 503, 302, 204}[n%5], strings.Repeat(" ", 100_000*(n%2)))
	})
	c := connect(t, s.URL)
	ctx := within(t)
	for range 20 {
		_ = c.ReportCapacity(ctx, "d", 1)
		_, _ = c.Poll(ctx, "d", client.PollQuery{})
		_, _ = c.Register(ctx, &client.Registration{})
	}
	// A 204 with a body is cut by the server, so the connection may end there.
	assert.LessOrEqual(t, s.conns.Load(), int64(1))

	const parallel = 64
	var gate, all sync.WaitGroup
	gate.Add(parallel)
	p := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n <= parallel { // the first round is all at once
			gate.Done()
			gate.Wait()
		}
		answer(w, 200, `{}`)
	})
	c = connect(t, p.URL)
	for range parallel {
		all.Go(func() {
			for range 10 {
				_, err := c.Poll(ctx, "d", client.PollQuery{})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, p.conns.Load(), int64(parallel+parallel/8), "connections for %d calls", 10*parallel)
}

// If the context ends after the answer has arrived, the caller gets the answer.
// Otherwise an acquired task would be lost.
func TestASuccessfulAnswerSurvivesTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(within(t))
	c := connect(t, "http://manager.invalid", client.WithTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader(`{"id":"t","type":"A"}`), funcReader(func([]byte) (int, error) {
			cancel()
			return 0, io.EOF
		}))
		return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
	})))
	got, err := c.Acquire(ctx, "d", event)
	require.NoError(t, err)
	assert.Equal(t, "t", got.ID)
	require.Error(t, ctx.Err())
}

// After the call the context of its attempts has ended, so that no timer and no
// transport continues.
func TestAnAttemptEndsWithItsCall(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"success": `{}`, "malformed": `x`, "no answer": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempt context.Context
			c := connect(t, "http://manager.invalid", client.WithTransport(roundTripper(func(r *http.Request) (*http.Response, error) {
				attempt = r.Context()
				if body == "" {
					return nil, errors.New("connection refused")
				}
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})))
			_, _ = c.Poll(within(t), "d", client.PollQuery{})
			require.Error(t, attempt.Err())
		})
	}
}

type funcReader func([]byte) (int, error)

func (f funcReader) Read(b []byte) (int, error) { return f(b) }

// The numbers of waiting stages in the answer to a heartbeat reach the option. A foreign manager answers anything, and the
// heartbeat succeeds.
func TestAHeartbeatReportsWaitingStages(t *testing.T) {
	t.Parallel()
	answers := []string{`{"waitingStages":{"large":3}}`, `{"waitingStages":{}}`, `{}`, `[1]`, `"ok"`, `not JSON`, ``, `{"waitingStages":{"x":"y"}}`}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request, n int) { answer(w, 200, answers[n-1]) })
	var got []map[string]int
	c := connect(t, s.URL, client.WithWaiting(func(stages map[string]int) { got = append(got, stages) }))
	for range answers {
		require.NoError(t, c.Heartbeat(within(t), &client.Registration{DelegateID: "d"}))
	}
	assert.Equal(t, []map[string]int{{"large": 3}, {}}, got)
}
