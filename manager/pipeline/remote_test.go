package pipeline_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// nowhere is an address at which nothing listens.
const nowhere = "http://127.0.0.1:1"

func newRemote(tb testing.TB, urls ...string) *pipeline.Remote {
	tb.Helper()
	r, err := pipeline.NewRemote(pipeline.RemoteConfig{
		URLs: urls, Accounts: map[string]string{account: secret}, Transport: http.DefaultTransport.(*http.Transport).Clone(),
	})
	require.NoError(tb, err)
	tb.Cleanup(r.Close)
	return r
}

func serveManager(tb testing.TB, h http.Handler) *httptest.Server {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(func() {
		s.CloseClientConnections() // ends the streams
		s.Close()
	})
	return s
}

// Of the two addresses the first one is dead, and all connections are cut again and again.
func TestRunsSurviveLostConnectionsToTheManager(t *testing.T) {
	t.Parallel()
	m := newManager(t, 4)
	server := serveManager(t, m)
	remote := newRemote(t, nowhere, server.URL)
	require.NoError(t, remote.Check(t.Context()))
	s := newService(t, remote)
	ctx, stop := context.WithCancel(t.Context())
	var cutting, runs sync.WaitGroup
	cutting.Go(func() {
		for feed := m.Events(account, 0); ctx.Err() == nil; feed = m.Events(account, feed.Last) {
			select { // an event is on its way to the service
			case <-feed.Changed:
				server.CloseClientConnections()
			case <-ctx.Done():
			}
			select { // each cut costs the stream a pause
			case <-time.After(30 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	for range 4 {
		runs.Go(func() {
			r := run(t, s, hello)
			assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
			assert.Equal(t, map[string]string{"VERSION": "1.2.3"}, node(t, r, ".version").Outputs)
		})
	}
	runs.Wait()
	stop()
	cutting.Wait()
}

// The managers serve the logs at their address. The first address is dead.
func TestTheLogsOfARunComeFromTheManagers(t *testing.T) {
	t.Parallel()
	m, logs := newManagerWithLogs(t, 2)
	remote := newRemote(t, nowhere, serveManager(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			m.ServeHTTP(w, r)
			return
		}
		assert.NotEmpty(t, r.Header.Get("X-Harness-Token"))
		r.Header.Set("X-Harness-Token", "fake-token") // the bundled manager takes tokens of the account
		logs.ServeHTTP(w, r)
	})).URL)
	s := newService(t, remote, func(c *pipeline.Config) { c.Logs = remote })
	_, err := s.Start(t.Context(), account, api.RunRequest{YAML: chatty, ID: "chat"})
	require.NoError(t, err)
	reader := logReader{t: t, url: serve(t, s) + "/api/runs/chat/logs", texts: map[string][]string{}, nodes: map[string]string{}}
	for reader.end == nil { // the connection breaks after each few events
		require.Equal(t, 200, reader.read(3))
	}
	run, err := s.Run(t.Context(), account, "chat")
	require.NoError(t, err)
	first := node(t, run, ".first").LogKey
	assert.Len(t, reader.texts[first], 300)
	assert.Empty(t, reader.end.Unfinished)
	var again []string
	for l, err := range remote.Lines(t.Context(), account, first, 290, false) { // now it is complete
		require.NoError(t, err)
		again = append(again, l.Out)
	}
	assert.Equal(t, reader.texts[first][290:], again)
	for _, err := range remote.Lines(t.Context(), account, "chat.build/none", 0, false) {
		t.Errorf("there is no such log, but %v", err)
	}
}

func TestErrorsOfARemoteManagerAreThoseOfAManager(t *testing.T) {
	t.Parallel()
	m := newManager(t, 1)
	r := newRemote(t, serveManager(t, m).URL)
	ctx := t.Context()
	held := api.StageRequest{ID: "held", Selectors: []string{"none"}, Hold: &api.Hold{LeaseMS: 60_000}, Init: []byte(`{"envs":{}}`)}
	st, err := r.SubmitStage(ctx, account, held)
	require.NoError(t, err)
	assert.Equal(t, api.Queued, st.Status)
	other := held
	other.Name = "other"
	_, err = r.SubmitStage(ctx, account, other)
	require.ErrorIs(t, err, manager.ErrConflict)
	require.NotErrorIs(t, err, manager.ErrNotOpen)
	_, err = r.AppendSteps(ctx, account, "held", []api.StepRequest{{}})
	require.ErrorIs(t, err, manager.ErrInvalid)
	st, err = r.AppendSteps(ctx, account, "held", []api.StepRequest{{ID: "pipeline.a/b", Data: []byte(`{"run":{"commands":["true"]}}`)}})
	require.NoError(t, err)
	assert.Len(t, st.Steps, 1)
	_, err = r.RenewStage(ctx, account, "held")
	require.NoError(t, err)
	_, err = r.AbortStep(ctx, account, "held", "pipeline.a/b")
	require.NoError(t, err)
	_, err = r.FinishStage(ctx, account, "held")
	require.NoError(t, err)
	_, err = r.RenewStage(ctx, account, "held")
	require.ErrorIs(t, err, manager.ErrNotOpen)
	_, err = r.AbortStage(ctx, account, "held")
	require.NoError(t, err)
	_, err = r.Stage(account, "none")
	require.ErrorIs(t, err, manager.ErrNotFound)
	step, err := r.Step(account, "held", "pipeline.a/b")
	require.NoError(t, err)
	assert.Equal(t, api.Aborted, step.Status)
}

// The answer 404 of a proxy must not end a run whose manager is only away.
func TestAnAnswerThatIsNotOfAManagerIsAnOutage(t *testing.T) {
	t.Parallel()
	for _, h := range []http.Handler{
		http.NotFoundHandler(),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error_msg":"the manager is closed"}`))
		}),
	} {
		r := newRemote(t, serveManager(t, h).URL)
		_, err := r.Stage(account, "any")
		require.ErrorIs(t, err, manager.ErrUnavailable)
		require.NotErrorIs(t, err, manager.ErrNotFound)
	}
	wrong, err := pipeline.NewRemote(pipeline.RemoteConfig{
		URLs: []string{serveManager(t, newManager(t, 1)).URL}, Accounts: map[string]string{account: strings.Repeat("f", 32)},
	})
	require.NoError(t, err)
	defer wrong.Close()
	require.ErrorContains(t, wrong.Check(t.Context()), "compare the account id and the secret")
}

// lagging is a manager that has not applied the newest events for some reads of a stage.
func lagging(h http.Handler, reads int64) http.Handler {
	var left atomic.Int64
	left.Store(reads)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/stages/") && r.Method == http.MethodGet && left.Add(-1) >= 0 {
			w.Header().Set(manager.LastEventHeader, "0")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_msg":"not found"}`))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// One of two managers reports an event, and the other one has not applied it yet.
func TestAReadIsNotOlderThanTheNewestEvent(t *testing.T) {
	t.Parallel()
	m := newManager(t, 1)
	r := newRemote(t, serveManager(t, lagging(m, 3)).URL)
	feed := r.Events(account, 0)
	<-feed.Changed // the stream is open, and the state must be read
	feed = r.Events(account, feed.Last)
	assert.True(t, feed.Missed)
	for i := range 3 {
		_, err := m.SubmitStage(t.Context(), account, api.StageRequest{ID: "s" + strconv.Itoa(i), Selectors: []string{"none"}})
		require.NoError(t, err)
	}
	seen := 0
	for feed = r.Events(account, feed.Last); ; feed = r.Events(account, feed.Last) {
		assert.False(t, feed.Missed)
		if seen += len(feed.Events); seen == 3 {
			break
		}
		<-feed.Changed
	}
	st, err := r.Stage(account, "s2")
	require.NoError(t, err)
	assert.Equal(t, api.Queued, st.Status)
}

// A manager without its store sends no events. The feed leaves it when answers of others show events that it lacks.
func TestAFeedLeavesAManagerThatIsBehind(t *testing.T) {
	t.Parallel()
	f := pipeline.NewFeed(5)
	begun := time.Now()
	f.Compare(5, begun)
	f.Compare(6, begun.Add(time.Second)) // another manager has an event more
	f.Compare(6, begun.Add(8*time.Second))
	assert.Zero(t, f.Reopened())
	f.Add(api.Event{ID: 6}) // which was only late
	f.Compare(7, begun.Add(20*time.Second))
	f.Compare(8, begun.Add(29*time.Second))
	assert.Zero(t, f.Reopened())
	f.Compare(9, begun.Add(31*time.Second))
	assert.Equal(t, 1, f.Reopened())
	f.Compare(9, begun.Add(32*time.Second)) // the new stream has its own time
	assert.Equal(t, 1, f.Reopened())
}

func TestARemoteManagerNeedsAddressesAndAccounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		urls     []string
		accounts map[string]string
		want     string
	}{
		{nil, map[string]string{account: secret}, "address of the manager is missing"},
		{[]string{"manager:3460"}, map[string]string{account: secret}, "https://host:port"},
		{[]string{"http://user:fake@manager"}, map[string]string{account: secret}, "https://host:port"},
		{[]string{nowhere}, nil, "accounts of the manager are missing"},
		{[]string{nowhere}, map[string]string{account: "short"}, `the secret of account "acme"`},
	} {
		_, err := pipeline.NewRemote(pipeline.RemoteConfig{URLs: c.urls, Accounts: c.accounts})
		require.ErrorContains(t, err, c.want)
	}
}
