package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	account = "acme"
	secret  = "00000000000000000000000000000001"
)

// site is a manager with its log service, the pipeline service and a delegate, behind a front that can break calls.
type site struct {
	*api.Client

	url      string
	token    string
	database string // of the runs
	http     *http.Client
	front    *front
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{front: &front{}, database: filepath.Join(t.TempDir(), "pipelines.db"), http: &http.Client{Transport: &http.Transport{}}}
	parsed, err := token.ParseSecret(secret)
	require.NoError(t, err)
	s.token, err = parsed.Issue(account, time.Now(), time.Hour)
	require.NoError(t, err)
	logs, err := logservice.New(logservice.Config{
		Authorize: func(a logservice.Access) bool { return a.Token == s.token }, PingInterval: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(s.front)
	s.url = "http://" + server.Listener.Addr().String()
	m, err := manager.New(manager.Config{
		Accounts: map[string]string{account: secret},
		Logs: func(account, _, _ string) *stage.LogConfig {
			return &stage.LogConfig{AccountID: account, URL: s.url, Token: s.token}
		},
	})
	require.NoError(t, err)
	runs, err := pipeline.New(t.Context(), pipeline.Config{
		Manager: m, Logs: logs, Database: s.database, Keys: [][]byte{[]byte("a key of 16 bytes")},
		Settings: pipeline.Settings{Infrastructure: map[string]pipeline.Infrastructure{"Docker": {Driver: "local", AnyPlatform: true}}},
	})
	require.NoError(t, err)
	routes := chi.NewRouter()
	for _, path := range []string{"/api/runs*", "/api/run-events", "/api/lint", "/api/pipelines*", "/api/triggers*", "/api/history*", "/api/letters*"} {
		routes.Handle(path, runs.Handler(m.Authenticate, manager.AccountOf))
	}
	routes.Handle("/api/hooks/*", runs.Hooks())
	routes.Handle("/api/*", m)
	routes.Handle("/*", logs)
	s.front.next = routes
	server.Start()
	s.Client = s.client(t)
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		assert.NoError(t, runs.Close())
		assert.NoError(t, m.Close())
		assert.NoError(t, logs.Close())
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// client returns a client of the site.
func (s *site) client(t testing.TB, change ...func(*api.Config)) *api.Client {
	t.Helper()
	cfg := api.Config{URL: s.url, Account: account, Token: s.token, HTTP: s.http}
	for _, f := range change {
		f(&cfg)
	}
	c, err := api.New(cfg)
	require.NoError(t, err)
	return c
}

// startDelegate starts a delegate that runs steps on this machine.
func (s *site) startDelegate(t testing.TB) {
	t.Helper()
	c, err := client.New(s.url, account, secret)
	require.NoError(t, err)
	driver, err := local.New(local.Config{Host: host.Config{WorkDir: filepath.Join(t.TempDir(), "work")}})
	require.NoError(t, err)
	stages := transaction.New(driver, transaction.WithSlots(capacity.NewSlots(4)), transaction.WithLedger(t.TempDir()))
	p := poller.New(c, router.New(stages.Routes()), poller.WithName("d"), poller.WithTags("linux", "amd64"), poller.WithStages(stages))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	polled := make(chan error, 1)
	go func() { polled <- p.Poll(context.WithoutCancel(t.Context()), 16, info.ID, time.Second) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Shutdown(ctx) // Poll returns the relevant error
		if err := <-polled; err != nil {
			t.Logf("the delegate ended: %v", err)
		}
		c.CloseIdleConnections()
	})
}

// front passes calls on, and breaks some.
type front struct {
	next http.Handler
	// lose makes the answers to so many calls with the method and path get lost, after they were executed.
	lose  atomic.Pointer[loss]
	calls atomic.Int64 // that matched the loss
	// cut is the number of flushes after which a stream is cut; 0 is none.
	cut  atomic.Int64
	cuts atomic.Int64
}

type loss struct {
	method, path string
	times        int64
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l := f.lose.Load(); l != nil && r.Method == l.method && strings.HasPrefix(r.URL.Path, l.path) {
		if f.calls.Add(1) <= l.times {
			f.next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
	}
	fromAPI := r.Header.Get("User-Agent") == "dlite-api"
	if n := f.cut.Load(); n > 0 && fromAPI && (r.URL.Path == "/stream" || strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/logs")) {
		w = &cutter{ResponseWriter: w, left: n, front: f}
	}
	f.next.ServeHTTP(w, r)
}

// cutter cuts the connection in the middle of a write.
type cutter struct {
	http.ResponseWriter

	left  int64
	front *front
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Write(b []byte) (int, error) {
	if c.left--; c.left < 0 && c.front.cut.Load() > 0 {
		_, _ = c.ResponseWriter.Write(b[:len(b)/2])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		c.front.cuts.Add(1)
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}
