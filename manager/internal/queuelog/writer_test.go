package queuelog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	account = "acc"
	logKey  = "stage/:init"
	token   = "fake-token"
	base    = "http://logs.example"
)

// fixture is a real log service without a network, in a synctest bubble.
type fixture struct {
	t    testing.TB
	logs *logservice.Server
	w    *queuelog.Writer

	mu    sync.Mutex
	calls []call
	// instead answers in place of the log service, if it is set and returns an answer.
	instead func(*http.Request) (*http.Response, error)
}

type call struct {
	at             time.Time
	method, writer string
}

// inBubble runs a test with a fake clock.
func inBubble(t *testing.T, cfg queuelog.Config, test func(t *testing.T, w *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t, cfg)) })
}

func newFixture(t testing.TB, cfg queuelog.Config) *fixture {
	w := &fixture{t: t}
	var err error
	w.logs, err = logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{account: token}), PublicURL: base})
	require.NoError(t, err)
	cfg.HTTPClient = w.client()
	w.w = queuelog.New(cfg)
	t.Cleanup(func() {
		w.w.Close()
		assert.NoError(t, w.logs.Close())
	})
	return w
}

func (w *fixture) client() *http.Client { return &http.Client{Transport: w} }

// RoundTrip replaces the network.
func (w *fixture) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.calls = append(w.calls, call{time.Now(), req.Method, req.Header.Get(logheader.Writer)})
	instead := w.instead
	w.mu.Unlock()
	if instead != nil {
		if resp, err := instead(req); resp != nil || err != nil {
			return resp, err
		}
	}
	return w.answer(req), req.Context().Err()
}

// answer returns the answer of the log service.
func (w *fixture) answer(req *http.Request) *http.Response {
	r := req.Clone(req.Context())
	r.RequestURI = req.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	w.logs.ServeHTTP(rec, r)
	return rec.Result()
}

func (w *fixture) set(instead func(*http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.instead = instead
}

// count returns the number of calls.
func (w *fixture) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

func status(code int, header ...string) *http.Response {
	rec := httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		rec.Header().Set(header[i], header[i+1])
	}
	rec.WriteHeader(code)
	return rec.Result()
}

func config() *stage.LogConfig { return &stage.LogConfig{URL: base, Token: token, AccountID: account} }

func (w *fixture) report(s queuelog.State) { w.w.Tell(account, "stage", config(), logKey, s) }

// pass advances the clock and waits for the due work.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// live returns the lines that a reader of the log has seen.
func (w *fixture) live() []string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var out []string
	go func() { // the bubble is idle: no more lines come now
		synctest.Wait()
		cancel()
	}()
	for l := range w.logs.Tail(ctx, account, logKey) {
		out = append(out, strings.TrimSuffix(l.Out, "\n"))
	}
	return out
}

// blob returns the lines of the archive, nil if there is none.
func (w *fixture) blob() []string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, base+"/blob?accountID=acc&key="+logKey, nil)
	require.NoError(w.t, err)
	req.Header.Set(logheader.Token, token)
	resp := w.answer(req)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	var out []string
	for raw := range strings.Lines(string(body)) {
		var l logger.Line
		require.NoError(w.t, json.Unmarshal([]byte(raw), &l))
		assert.False(w.t, l.Time.IsZero())
		out = append(out, strings.TrimSuffix(l.Out, "\n"))
	}
	return out
}

func queued(place int, reason string, since time.Time) queuelog.State {
	return queuelog.State{Status: queuelog.Queued, Place: place, Reason: reason, Since: since}
}

const busy = "3 eligible delegates, all at capacity (6 slots)"

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

func TestNoMoreLinesAfterARefusal(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(*http.Request) (*http.Response, error) { return status(401), nil })
		for i := range 20 {
			w.report(queued(i, fmt.Sprint("reason ", i), time.Now()))
			pass(time.Minute)
		}
		w.report(queuelog.State{Status: "ABORTED"})
		pass(time.Hour)
		assert.Equal(t, 1, w.count())
	})
}

// The writer gives up on a log service that stays unavailable.
func TestTheWriterGivesUpOnAnUnavailableLogService(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("the service is unreachable") })
		w.report(queued(1, busy, time.Now()))
		pass(24 * time.Hour)
		n := w.count()
		assert.InDelta(t, 24*60, n, 30, "about once a minute")
		w.report(queuelog.State{Status: "ABORTED"})
		pass(24 * time.Hour)
		assert.LessOrEqual(t, w.count()-n, 10)
	})
}

// The log service cannot delay the manager, not even in Close.
func TestTellAndCloseDoNotWait(t *testing.T) {
	inBubble(t, queuelog.Config{}, func(t *testing.T, w *fixture) {
		w.set(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		for i := range 100 {
			w.w.Tell(account, fmt.Sprint(i), config(), logKey, queued(1, busy, time.Now()))
		}
		pass(2 * time.Second)
		assert.Equal(t, 8, w.count(), "requests at once")
		began := time.Now()
		for i := range 100 {
			w.w.Tell(account, fmt.Sprint(i), config(), logKey, queuelog.State{Status: "ABORTED"})
		}
		w.w.Close()
		assert.Zero(t, time.Since(began))
		w.w.Tell(account, "late", config(), logKey, queued(1, busy, time.Now()))
	})
}

// A thousand stages share the rate. Stages that are taken go first, because a reader is
// likely to watch them.
func TestRequestsPerSecondAreBounded(t *testing.T) {
	inBubble(t, queuelog.Config{Rate: 100, MaxStages: 1000}, func(t *testing.T, w *fixture) {
		key := func(i int) string { return fmt.Sprintf("stage%d/:init", i) }
		for i := range 2000 {
			w.w.Tell(account, fmt.Sprint(i), config(), key(i), queued(i, busy, time.Now()))
		}
		pass(2 * time.Second)
		assert.InDelta(t, 100, w.count(), 1)
		w.w.Tell(account, "50", config(), key(50), queuelog.State{Status: queuelog.Running, Delegate: "d"})
		pass(10 * time.Millisecond)
		w.mu.Lock()
		last := w.calls[len(w.calls)-1]
		w.mu.Unlock()
		assert.True(t, strings.HasSuffix(last.writer, "-50"), last.writer)
		pass(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Len(t, w.calls, 1001, "more stages are ignored")
		for i := range len(w.calls) - 100 {
			assert.GreaterOrEqual(t, w.calls[i+100].at.Sub(w.calls[i].at), time.Second)
		}
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

// For random calls of Tell: the lines of a stage keep their minimum distance, no line
// repeats the previous one, the last lines report the end, and the writer then forgets
// the stage.
func TestLinesKeepTheirMinimumDistance(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t, queuelog.Config{Rate: 1000})
			since := time.Now()
			type written struct {
				at   time.Time
				text string
			}
			var lines []written
			w.set(func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodPut {
					return nil, nil
				}
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				var list []logger.Line
				assert.NoError(t, json.Unmarshal(body, &list))
				for _, l := range list {
					assert.EqualValues(t, len(lines), l.Pos)
					lines = append(lines, written{l.Time, l.Out})
				}
				return status(204), nil
			})
			for range rapid.IntRange(0, 60).Draw(rt, "changes") {
				w.report(queued(rapid.IntRange(1, 3).Draw(rt, "place"), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "reason"), since))
				pass(time.Duration(rapid.Int64Range(0, int64(6*time.Second)).Draw(rt, "pause")))
			}
			for i, l := range lines[:max(len(lines)-1, 0)] {
				next := lines[i+1]
				least := 10 * time.Second
				if reason(l.text) != reason(next.text) {
					least = time.Second
				}
				assert.GreaterOrEqual(t, next.at.Sub(l.at), least, "%q, %q", l.text, next.text)
				_, was, _ := strings.Cut(l.text, ": ")
				_, is, _ := strings.Cut(next.text, ": ")
				assert.NotEqual(t, was, is)
			}
			n := len(lines)
			w.report(queuelog.State{Status: "ABORTED", Since: since})
			pass(time.Hour)
			if n > 0 {
				assert.Len(t, lines, n+1)
				assert.Contains(t, lines[n].text, "ABORTED")
				assert.Equal(t, http.MethodDelete, w.calls[len(w.calls)-1].method)
			}
			assert.Zero(t, w.w.Stages())
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// reason returns the last part of a line.
func reason(text string) string { return text[strings.LastIndex(text, ":"):] }

// BenchmarkTell measures one Tell of a changed place with 10,000 stages.
func BenchmarkTell(b *testing.B) {
	w := queuelog.New(queuelog.Config{Delay: time.Hour})
	defer w.Close()
	ids := make([]string, 10_000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	log, since := config(), time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Tell(account, ids[i%len(ids)], log, logKey, queued(i, busy, since))
	}
}
