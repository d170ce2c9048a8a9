package peers_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
)

// holder is a daemon that holds its tasks.
type holder struct {
	mu    sync.Mutex
	tasks map[string]string // guarded by mu
	moved chan struct{}
}

func (*holder) Configure(context.Context, json.RawMessage) error { return nil }

func (h *holder) change(f func()) error {
	h.mu.Lock()
	f()
	h.mu.Unlock()
	select {
	case h.moved <- struct{}{}:
	default:
	}
	return nil
}

func (h *holder) Assign(_ context.Context, tasks []daemonset.Task) error {
	return h.change(func() {
		for _, t := range tasks {
			h.tasks[t.ID] = string(t.Params.Data)
		}
	})
}

func (h *holder) Remove(_ context.Context, ids []string) error {
	return h.change(func() {
		for _, id := range ids {
			delete(h.tasks, id)
		}
	})
}

// Rule G2: daemon sets from the API of our manager to a daemon of our delegate, and its health back, in both protocols. A
// task on one delegate moves when that one stops.
func TestDaemonSetsReachDelegates(t *testing.T) {
	t.Parallel()
	ctx := within(t)
	m, err := manager.New(manager.Config{Accounts: map[string]string{benchAccount: benchSecret}})
	require.NoError(t, err)
	srv := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		srv.Close()
	})
	token, err := m.Token(benchAccount, api.RoleOperate, time.Hour)
	require.NoError(t, err)
	calls, err := api.New(api.Config{URL: srv.URL, Account: benchAccount, Token: token})
	require.NoError(t, err)
	holders, stops := map[string]*holder{}, map[string]func(){}
	for name, protocol := range map[string]client.Protocol{"one": client.V1, "two": client.V2} {
		h := &holder{tasks: map[string]string{}, moved: make(chan struct{}, 1)}
		r, err := daemonset.New(daemonset.Config{State: filepath.Join(t.TempDir(), "daemons"), Handlers: map[string]daemonset.Handler{"hold": h}})
		require.NoError(t, err)
		c, err := client.New(srv.URL, benchAccount, benchSecret, client.WithProtocol(protocol))
		require.NoError(t, err)
		p := poller.New(c, router.New(r.Routes()), poller.WithName(name), poller.WithDaemons(r))
		over := make(chan error, 1)
		go func() { over <- p.Run(context.WithoutCancel(ctx), 1) }()
		stop := sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			assert.NoError(t, p.Shutdown(ctx))
			assert.NoError(t, <-over)
			c.CloseIdleConnections()
		})
		t.Cleanup(stop)
		holders[name], stops[name] = h, stop
	}
	_, err = calls.SetDaemonSet(ctx, api.DaemonSet{ID: "set", Type: "hold"})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} {
		spread := map[string]string{"b": "one"}[id]
		_, err = calls.SetDaemonTask(ctx, "set", api.DaemonTask{ID: id, Data: json.RawMessage(`{"n":1}`), Spread: spread})
		require.NoError(t, err)
	}
	has := func(name, id string) bool {
		h := holders[name]
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.tasks[id] == `{"n":1}`
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		limit := time.After(patience)
		for !ok() {
			select {
			case <-holders["one"].moved:
			case <-holders["two"].moved:
			case <-time.After(10 * time.Millisecond): // another goroutine may have taken the event
			case <-limit:
				require.FailNow(t, what)
			}
		}
	}
	until("all tasks", func() bool {
		return has("one", "a") && has("two", "a") && has("one", "b") != has("two", "b")
	})
	until("the health", func() bool {
		s, err := calls.DaemonSet(ctx, "set")
		require.NoError(t, err)
		return len(s.Delegates) == 2 && s.Delegates[0].Healthy && s.Delegates[1].Healthy
	})
	leaves, stays := "one", "two"
	if has("two", "b") {
		leaves, stays = stays, leaves
	}
	stops[leaves]()
	assert.Empty(t, holders[leaves].tasks, "a stopped delegate keeps tasks")
	until("the move", func() bool { return has(stays, "b") })
	require.NoError(t, calls.DeleteDaemonSet(ctx, "set"))
	until("the end", func() bool { return !has(stays, "a") && !has(stays, "b") })
}
