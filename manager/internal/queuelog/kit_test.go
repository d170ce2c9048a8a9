package queuelog_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/internal/queuelog"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
