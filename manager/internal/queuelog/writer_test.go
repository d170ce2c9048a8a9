package queuelog_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
)

const (
	account = "acc"
	logKey  = "stage/:init"
	token   = "fake-token"
	base    = "http://logs.example"
)

// Rule Q5: a queued stage has lines in its init's log with its place and the reason. A
// new reason causes a line; a new place causes a line at most every 10 s.
func TestAQueuedStageHasLines(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		since := time.Now()
		w.report(queued(3, busy, since))
		pass(time.Second - 1)
		assert.Zero(t, w.count())
		pass(1)
		want := []string{"queued: place 3: " + busy}
		assert.Equal(t, want, w.live())
		for place := range 50 {
			w.report(queued(60-place, busy, since))
			pass(10 * time.Millisecond)
		}
		w.report(queued(2, busy, since))
		pass(9499 * time.Millisecond)
		assert.Equal(t, want, w.live())
		pass(time.Millisecond)
		want = append(want, "queued for 11s: place 2: "+busy)
		assert.Equal(t, want, w.live())
		w.report(queued(2, "no delegate is there\nat all", since))
		pass(time.Second)
		want = append(want, "queued for 12s: place 2: no delegate is there at all")
		assert.Equal(t, want, w.live())
		w.report(queued(2, "no delegate is there\nat all", since))
		pass(time.Hour)
		assert.Equal(t, want, w.live(), "no line is repeated")
		w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "build-7"})
		synctest.Wait()
		want = append(want, "taken by delegate build-7 after 1h0m12s")
		assert.Equal(t, want, w.live())
		assert.Nil(t, w.blob())
		w.report(queuelog.State{Status: "SUCCESS", Since: since, Delegate: "build-7"})
		pass(5 * time.Second)
		assert.Equal(t, want, w.blob(), "an init without output")
		n := w.count()
		w.report(queuelog.State{Status: "SUCCESS", Since: since, Delegate: "build-7"})
		pass(time.Hour)
		assert.Equal(t, n, w.count())
	})
}

// A stage that is taken at once, like most stages, causes no request.
func TestAStageThatIsTakenAtOnceHasNoLines(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		since := time.Now()
		w.report(queued(1, "it is not decided yet", since))
		pass(900 * time.Millisecond)
		w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "d"})
		pass(time.Minute)
		w.report(queuelog.State{Status: "SUCCESS", Since: since, Delegate: "d"})
		w.w.Tell(account, "other", nil, logKey, queued(1, busy, since))
		w.w.Tell(account, "other", config(), "", queued(1, busy, since))
		pass(time.Hour)
		assert.Zero(t, w.count())
	})
}

// The delegate continues the same log and closes it. For each way in which it may do
// so, live readers and the archive have the lines of this package and then the lines of
// the delegate.
func TestTheLinesOfTheDelegateFollow(t *testing.T) {
	t.Parallel()
	for name, delegate := range map[string]func(*testing.T, *fixture){
		"ours, with a link":            ours(logger.StreamConfig{}),
		"ours, through the service":    ours(logger.StreamConfig{IndirectUpload: true}),
		"ours, which does not open it": ours(logger.StreamConfig{SkipOpeningStream: true}),
		"a foreign one, with a link":   foreign,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
				since := time.Now()
				w.report(queued(3, busy, since))
				pass(12 * time.Second)
				w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "d"})
				pass(100 * time.Millisecond)
				seen := make(chan []string, 1)
				go func() {
					var out []string
					for l := range w.logs.Tail(t.Context(), account, logKey) {
						out = append(out, strings.TrimSuffix(l.Out, "\n"))
					}
					seen <- out
				}()
				synctest.Wait()
				delegate(t, w)
				w.report(queuelog.State{Status: "SUCCESS", Since: since})
				pass(5 * time.Second)
				want := []string{"queued: place 3: " + busy, "taken by delegate d after 12s", "cloning", "done"}
				assert.Equal(t, want, <-seen)
				assert.Equal(t, want, w.blob())
			})
		})
	}
}

func ours(cfg logger.StreamConfig) func(*testing.T, *fixture) {
	return func(t *testing.T, w *fixture) {
		cfg.URL, cfg.Token, cfg.Account, cfg.Key, cfg.HTTPClient = base, token, account, logKey, w.client()
		s := logger.OpenStream(t.Context(), cfg)
		_, _ = io.WriteString(s, "cloning\n")
		pass(time.Second)
		_, _ = io.WriteString(s, "done\n")
		require.NoError(t, s.Close(t.Context()))
	}
}

// foreign makes the recorded calls of docs/protocol.md, section 4, without the SDK's
// headers.
func foreign(t *testing.T, w *fixture) {
	send := func(method, url, body string) string {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(logheader.Token, token)
		resp := w.answer(req)
		defer func() { _ = resp.Body.Close() }()
		require.Less(t, resp.StatusCode, 300)
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(answer)
	}
	const query = "?accountID=acc&key=" + logKey
	lines := []string{
		`{"level":"info","pos":0,"out":"cloning\n","time":"2024-05-06T07:08:09Z","args":null}`,
		`{"level":"info","pos":1,"out":"done\n","time":"2024-05-06T07:08:09Z","args":null}`,
	}
	send("POST", base+"/stream"+query, "")
	send("PUT", base+"/stream"+query, "["+strings.Join(lines, ",")+"]")
	var link struct{ Link string }
	require.NoError(t, json.Unmarshal([]byte(send("POST", base+"/blob/link/upload"+query, "")), &link))
	send("PUT", link.Link, strings.Join(lines, "\n"))
	send("DELETE", base+"/stream"+query, "")
}

func TestAStageThatEndsInTheQueueHasTheReason(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		since := time.Now()
		w.report(queued(1, busy, since))
		pass(time.Minute)
		w.report(queuelog.State{Status: "ABORTED", Since: since, Reason: "the user aborted it"})
		synctest.Wait()
		assert.Equal(t, []string{"queued: place 1: " + busy, "ABORTED in the queue after 1m0s: the user aborted it"}, w.blob())
	})
}

func TestAStageThatReturnsToTheQueueContinuesItsLog(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		since := time.Now()
		w.report(queued(1, busy, since))
		pass(10 * time.Second)
		w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "a"})
		pass(10 * time.Second)
		w.report(queued(1, "delegate a is lost", since))
		pass(10 * time.Second)
		w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "b"})
		w.report(queuelog.State{Status: "FAILURE", Since: since})
		want := []string{
			"queued: place 1: " + busy, "taken by delegate a after 10s",
			"queued again for 21s: place 1: delegate a is lost", "taken by delegate b after 30s",
		}
		pass(5*time.Second - 1)
		assert.Equal(t, want, w.live())
		assert.Nil(t, w.blob(), "the delegate may have something to send")
		pass(1)
		assert.Equal(t, want, w.blob())
	})
}

// The manager restarts while the stage waits.
func TestAnotherManagerContinues(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		since := time.Now()
		w.report(queued(1, busy, since))
		pass(10 * time.Second)
		w.w.Close()
		next := queuelog.New(queuelog.Config{HTTPClient: w.client()})
		defer next.Close()
		next.Tell(account, "stage", config(), logKey, queuelog.State{Status: queuelog.Running, Since: since, Delegate: "b"})
		synctest.Wait()
		next.Tell(account, "stage", config(), logKey, queuelog.State{Status: "SUCCESS", Since: since})
		pass(10 * time.Second)
		assert.Equal(t, []string{"queued: place 1: " + busy, "taken by delegate b after 10s"}, w.blob())
	})
}

// Lines arrive once, even if the log service is unavailable or its answer is lost.
func TestLinesArriveOnce(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		lost := errors.New("the answer is lost")
		answers := []func(*http.Request) (*http.Response, error){
			func(*http.Request) (*http.Response, error) { return nil, errors.New("the service is unreachable") },
			func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "7"), nil },
			func(req *http.Request) (*http.Response, error) { w.answer(req); return nil, lost },
			func(req *http.Request) (*http.Response, error) { w.answer(req); return status(502), nil },
		}
		n := 0
		w.set(func(req *http.Request) (*http.Response, error) {
			if n++; n <= len(answers) {
				return answers[n-1](req)
			}
			return nil, nil
		})
		since := time.Now()
		w.report(queued(1, busy, since))
		pass(2 * time.Second) // the second attempt
		assert.Equal(t, 2, w.count())
		pass(7*time.Second - 1)
		assert.Equal(t, 2, w.count(), "the service asked for a pause")
		pass(time.Minute)
		assert.Equal(t, []string{"queued: place 1: " + busy}, w.live())
		w.report(queuelog.State{Status: "ABORTED", Since: since})
		pass(time.Minute)
		assert.Len(t, w.blob(), 2)
	})
}

// Some log services require an open stream before they accept lines.
func TestAStreamIsOpenedIfTheServiceRequiresIt(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		open := false
		w.set(func(req *http.Request) (*http.Response, error) {
			if open = open || req.Method == http.MethodPost; open {
				return nil, nil
			}
			return status(404), nil
		})
		w.report(queued(1, busy, time.Now()))
		pass(time.Second)
		assert.Equal(t, []string{"queued: place 1: " + busy}, w.live())
	})
}

// The writer asks its owner for the place, so that the owner need not report each
// change.
func TestTheOwnerIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		since := time.Now()
		var place, asked atomic.Int64
		place.Store(9)
		w := newFixture(t, queuelog.Config{Ask: func(a, s string) (queuelog.State, bool) {
			assert.Equal(t, account+"stage", a+s)
			asked.Add(1)
			p := int(place.Load())
			return queued(p, busy, since), p > 0
		}})
		w.report(queued(30, busy, since))
		pass(10 * time.Second)
		place.Store(4)
		pass(time.Second)
		place.Store(0)
		pass(time.Minute)
		assert.Equal(t, []string{"queued: place 9: " + busy, "queued for 11s: place 4: " + busy}, w.live())
		assert.EqualValues(t, 8, asked.Load())
		w.report(queuelog.State{Status: queuelog.Running, Since: since})
		pass(time.Hour)
		assert.EqualValues(t, 8, asked.Load())
	})
}

// A call of Tell during Ask is newer than the result of Ask.
func TestTellOverridesAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w *fixture
		since := time.Now().Add(-time.Minute)
		w = newFixture(t, queuelog.Config{Ask: func(string, string) (queuelog.State, bool) {
			w.report(queuelog.State{Status: queuelog.Running, Since: since, Delegate: "d"})
			return queued(9, busy, since), true
		}})
		w.report(queued(30, busy, since))
		pass(time.Minute)
		assert.Equal(t, []string{"taken by delegate d after 1m1s"}, w.live())
	})
}
