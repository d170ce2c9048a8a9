//go:build unix

package daemonset_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/task"
)

func unhealthy(text string) func([]task.DaemonReport) bool {
	return func(all []task.DaemonReport) bool {
		return len(all) == 1 && !all[0].Healthy && strings.Contains(all[0].Error, text)
	}
}

// Changed settings reach the running daemon, a change of the program starts it anew. Members that are
// unknown or have their default change nothing.
func TestSettingsChangeInPlace(t *testing.T) {
	s := newStand(t, nil)
	set := func(settings, greeting string) task.DaemonSet {
		return s.set("a", "", func(c map[string]any) {
			c["settings"] = json.RawMessage(settings)
			c["envs"] = append(c["envs"].([]string), "GREETING="+greeting)
		}, "t1")
	}
	s.srv.SetDaemonSets([]task.DaemonSet{set(`{"n":1}`, "x")}, payload("t1"))
	s.report("healthy", healthy("a"))
	s.await("the task", func() bool { return strings.Contains(s.journals()[0], "assign t1") })
	assert.Less(t, strings.Index(s.journals()[0], `settings {"n":1}`), strings.Index(s.journals()[0], "assign t1"))
	s.srv.SetDaemonSets([]task.DaemonSet{set(`{"n":2}`, "x")}, payload("t1"))
	s.await("the settings", func() bool { return strings.Contains(s.journals()[0], `settings {"n":2}`) })
	other := set(`{"n": 3}`, "x")
	other.Config = json.RawMessage(strings.Replace(string(other.Config), `{`, `{"unknown":1, "cpu":0,`, 1))
	s.srv.SetDaemonSets([]task.DaemonSet{other}, payload("t1"))
	s.await("the settings", func() bool { return strings.Contains(s.journals()[0], `settings {"n":3}`) })
	require.Len(t, s.journals(), 1)

	s.srv.SetDaemonSets([]task.DaemonSet{set(`{"n":2}`, "y")}, payload("t1"))
	s.await("another process", func() bool {
		all := s.journals()
		return len(all) == 2 && strings.Contains(all[0]+all[1], "stopped") && strings.Count(all[0]+all[1], "assign t1") == 2
	})
	s.report("healthy", healthy("a"))
	assert.Zero(t, s.metric("dlite_daemon_restarts_total", ""), "an update is no restart")
	s.srv.SetDaemonSets([]task.DaemonSet{set(`{"refuse":true}`, "y")}, payload("t1"))
	s.report("refused", unhealthy("these settings are refused"))
	s.log.WaitFor(t, `"again_in":"50ms"`, 2) // with pauses
	assert.NotContains(t, s.journals()[len(s.journals())-1], "assign", "a daemon without its settings gets tasks")
}

// A daemon that ends is restarted with growing pauses, and the report has the reason. A new config that works is tried at
// once.
func TestACrashLoop(t *testing.T) {
	s := newStand(t, nil)
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "die", nil)})
	s.report("the reason", unhealthy("exit status 4"))
	s.log.WaitFor(t, `"again_in":"10ms"`, 1)
	s.log.WaitFor(t, `"again_in":"20ms"`, 1)
	s.log.WaitFor(t, `"again_in":"50ms"`, 3)
	assert.Equal(t, 1.0, s.metric("dlite_daemons", "unhealthy"))
	assert.GreaterOrEqual(t, s.metric("dlite_daemon_restarts_total", ""), 4.0)
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil)})
	s.report("healthy", healthy("a"))
	assert.Equal(t, []float64{1, 0}, []float64{s.metric("dlite_daemons", "healthy"), s.metric("dlite_daemons", "unhealthy")})
}

// A task that kills its daemon does not stay out of sight, and the others come back after each restart.
func TestATaskThatKillsItsDaemon(t *testing.T) {
	s := newStand(t, nil)
	bad := payload("t2")
	bad.Data = json.RawMessage(`"crash"`)
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil, "t1", "t2")}, payload("t1"), bad)
	s.report("the reason", unhealthy("exit status 3"))
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil, "t1")}, payload("t1"))
	s.report("healthy", healthy("a"))
	s.await("the task", func() bool { return strings.Contains(strings.Join(s.journals(), "\n"), "assign t1") })
}

// A daemon set that the manager holds stays as it is. One with an invalid config keeps the last good one.
func TestHeldAndInvalidDaemonSets(t *testing.T) {
	s := newStand(t, nil)
	held := s.set("b", "", nil)
	held.SkipUpdate = true
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil), held})
	s.report("only one", healthy("a"))
	other := s.set("a", "port", nil, "t1")
	other.SkipUpdate = true
	s.srv.SetDaemonSets([]task.DaemonSet{other}, payload("t1"))
	wrong := s.set("a", "", nil)
	wrong.Config = json.RawMessage(`{"envs":["not-a-real-secret"]}`)
	s.srv.SetDaemonSets([]task.DaemonSet{wrong})
	got := s.report("the reason", func(all []task.DaemonReport) bool {
		return len(all) == 1 && strings.Contains(all[0].Error, "NAME=value")
	})
	assert.True(t, got[0].Healthy)
	assert.NotContains(t, got[0].Error, "not-a-real-secret")
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil)})
	s.report("healthy", healthy("a"))
	require.Len(t, s.journals(), 1)
	assert.NotContains(t, s.journals()[0], "assign")
}

// The new program is there before the old daemon ends. While it cannot be had, the old daemon continues.
func TestAnUpdateThatCannotBeFetched(t *testing.T) {
	var broken atomic.Bool
	s := newStand(t, func(c *daemonset.Config) {
		c.Programs = func(ctx context.Context, config json.RawMessage) (*exec.Cmd, func(), error) {
			if broken.Load() {
				return nil, nil, errors.New("the server of the program is away")
			}
			return thisProgram(ctx, config)
		}
	})
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", nil, "t1")}, payload("t1"))
	s.report("healthy", healthy("a"))
	broken.Store(true)
	change := func(c map[string]any) { c["version"] = "2" }
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", change, "t1")}, payload("t1"))
	got := s.report("the reason", func(all []task.DaemonReport) bool { return len(all) == 1 && strings.Contains(all[0].Error, "is away") })
	assert.True(t, got[0].Healthy)
	assert.NotContains(t, s.journals()[0], "stopped")
	broken.Store(false)
	s.await("the update", func() bool { return len(s.journals()) == 2 })
	s.report("healthy", healthy("a"))
}

// A daemon set keeps its daemon when only its id changes, as other managers do.
func TestADaemonSetWithAnotherID(t *testing.T) {
	s := newStand(t, nil)
	set := s.set("a", "", nil, "t1")
	s.srv.SetDaemonSets([]task.DaemonSet{set}, payload("t1"))
	s.report("healthy", healthy("a"))
	set.ID = "b"
	s.srv.SetDaemonSets([]task.DaemonSet{set}, payload("t1"))
	s.report("healthy", healthy("b"))
	assert.Len(t, s.journals(), 1)
}

// A manager may start a daemon set and hand a task over by tasks of the queue, even if it takes no reports.
func TestDaemonSetsByTasks(t *testing.T) {
	s := newStopped(t, nil, clienttest.Config{Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if call, _, _ := clienttest.CallOf(r); call == "reconcile" { // otherwise its answer ends a call without an answer
				http.NotFound(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	s.start()
	set := s.set("a", "", nil)
	data, err := json.Marshal(map[string]any{"daemon_set_id": "a", "type": "type-a", "config": set.Config})
	require.NoError(t, err)
	resp, err := s.srv.Submit(&task.Task{Type: "daemonset/upsert", Data: data}).Wait(t.Context())
	require.NoError(t, err)
	assert.JSONEq(t, `{"daemon_set_id":"a","state":"SUCCESS"}`, string(resp.Data))
	resp, err = s.srv.Submit(&task.Task{Type: "daemonset/tasks/assign", Data: json.RawMessage(`{"daemon_task_id":"t1","params":{"binary_data":"MQ=="},"type":"type-a"}`)}).Wait(t.Context())
	require.NoError(t, err)
	assert.JSONEq(t, `{"daemon_task_id":"t1","state":"SUCCESS"}`, string(resp.Data))
	assert.Contains(t, s.journals()[0], "assign t1 1")
	resp, err = s.srv.Submit(&task.Task{Type: "daemonset/tasks/assign", Data: json.RawMessage(`{"daemon_task_id":"t1","params":{},"type":"none"}`)}).Wait(t.Context())
	require.NoError(t, err)
	assert.Contains(t, string(resp.Data), "FAILURE")
}

// A handler in the delegate's process is a daemon too. Its tasks are taken away when the daemon set is removed.
func TestAHandlerInTheProcess(t *testing.T) {
	h := &recording{told: make(chan struct{}, 1)}
	s := newStand(t, func(c *daemonset.Config) { c.Handlers = map[string]daemonset.Handler{"inside": h} })
	s.srv.SetDaemonSets([]task.DaemonSet{{ID: "a", Type: "inside", Config: json.RawMessage(`{"settings":7}`), TaskIDs: []string{"t1"}}}, payload("t1"))
	s.report("healthy", healthy("a"))
	s.srv.SetDaemonSets(nil)
	s.report("gone", healthy())
	done := func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.Contains(h.lines, "remove t1")
	}
	s.await("removal", done)
	assert.Equal(t, []string{"settings 7", `assign t1 {"of":"t1"} []`, "remove t1"}, h.lines)
	s.srv.SetDaemonSets([]task.DaemonSet{{ID: "a", Type: "unknown"}})
	s.report("the reason", unhealthy(`no handler for type "unknown"`))
}
