//go:build unix

package daemonset_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task"
)

// A delegate starts the daemon of a daemon set as a process, hands its tasks over, removes those that are not assigned any
// more, and stops it with SIGTERM at its end (rule G2).
func TestADaemonGetsItsTasks(t *testing.T) {
	t.Setenv("DLITE_TEST_LEAK", "not-a-real-secret")
	s := newStand(t, nil)
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", func(c map[string]any) { c["args"] = []string{"one", "two"} }, "t1", "t2")},
		payload("t1"), payload("t2"))
	s.report("healthy", healthy("a"))
	s.await("tasks", func() bool { return len(s.journals()) == 1 && strings.Contains(s.journals()[0], "assign t2") })
	got := s.journals()[0]
	assert.Contains(t, got, "started  args=[one two] greeting=hello a leaked=false")
	assert.Contains(t, got, `assign t1 {"of":"t1"} []`)

	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "", func(c map[string]any) { c["args"] = []string{"one", "two"} }, "t2", "t3")}, payload("t3"))
	s.await("removal", func() bool { return strings.Contains(s.journals()[0], "remove t1\nassign t3") })
	s.log.WaitFor(t, "working on t3", 1)

	s.srv.SetDaemonSets(nil)
	s.report("gone", healthy())
	require.Len(t, s.journals(), 1, "the daemon was restarted")
	s.await("stop", func() bool { return strings.HasSuffix(s.journals()[0], "stopped") })
	assert.Equal(t, 1, strings.Count(s.journals()[0], "assign t2"))
}

// A daemon that knows only the port, as daemons of other projects do, works too.
func TestADaemonThatKnowsOnlyThePort(t *testing.T) {
	s := newStand(t, nil)
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "port", nil, "t1")}, payload("t1"))
	s.report("healthy", healthy("a"))
	s.await("tasks", func() bool { return strings.Contains(strings.Join(s.journals(), ""), "assign t1") })
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "port", nil)})
	s.await("removal", func() bool { return strings.Contains(s.journals()[0], "remove t1") })
}

// Secrets of a config and of a task are resolved when they are needed, reach the daemon, and are masked in its output.
func TestSecretsReachTheDaemonAndNoLog(t *testing.T) {
	s := newStand(t, nil)
	static := func(id, value string) *task.Task {
		return &task.Task{ID: id, Type: task.TypeSecretStatic, Data: json.RawMessage(`{"secrets":[{"value":"` + value + `"}]}`)}
	}
	set := s.set("a", "", func(c map[string]any) {
		c["envs"] = append(c["envs"].([]string), "GREETING=${{secrets.greeting}}")
	}, "t1")
	set.Secrets = []*task.Task{static("greeting", "not-a-real-greeting")}
	one := payload("t1")
	one.Data = json.RawMessage(`{"token":"${{secrets.token}}"}`)
	one.Secrets = []*task.Task{static("token", "not-a-real-token")}
	s.srv.SetDaemonSets([]task.DaemonSet{set}, one)
	s.await("tasks", func() bool { return strings.Contains(strings.Join(s.journals(), ""), "assign t1") })
	assert.Contains(t, s.journals()[0], "greeting=not-a-real-greeting")
	assert.Contains(t, s.journals()[0], `assign t1 {"token":"not-a-real-token"} [{token not-a-real-token}]`)
	s.log.WaitFor(t, "working on t1 with", 1)
	assert.NotContains(t, s.log.String(), "not-a-real")
	for _, r := range s.srv.DaemonReports(s.srv.Delegates()[0].ID) {
		assert.NotContains(t, string(r.Config), "not-a-real")
	}
}
