package manager

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task"
)

// busyCore returns a core that has every kind of state, and the time of its last
// command.
func busyCore(t *testing.T) (*core, time.Time) {
	t.Helper()
	m, err := New(Config{Accounts: map[string]string{"acc": "00000000000000000000000000000001"}, LogURLs: []string{"http://127.0.0.1:9"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	c, at := newCore(true), time.Unix(1_700_000_000, 0).UTC()
	do := func(cmd *command) result {
		cmd.Account, at = "acc", at.Add(time.Second)
		b, err := c.Encode(cmd)
		require.NoError(t, err)
		decoded, err := c.Decode(b)
		require.NoError(t, err)
		r, ok := c.Apply(at, decoded, false).(result)
		require.True(t, ok)
		require.NoError(t, r.err)
		return r
	}
	set := m.cfg.settings()
	set.Epoch = "epoch"
	do(&command{Configure: &set})
	do(&command{Lead: &idCommand{"leader"}})
	do(&command{SetLimit: &api.Limit{Group: "pipeline:p", Max: 7}})
	do(&command{SetDaemonSet: &api.DaemonSet{ID: "set", Type: "x", Config: json.RawMessage(`{"image":"i"}`)}})
	do(&command{SetDaemonTask: &daemonTaskCommand{Set: "set", Task: api.DaemonTask{ID: "t", Data: json.RawMessage(`{"a":1}`), Spread: spreadOne}}})
	do(&command{ReportDaemons: &daemonReportCommand{Delegate: "d", Sets: map[string]daemonReport{"set": {Healthy: true}}}})
	do(&command{SetSchedule: &api.Schedule{ID: "nightly", Cron: "@daily", Stage: json.RawMessage(`{}`), Next: at.Add(time.Hour), Last: at, LastID: "x"}})
	do(&command{SetConnector: &api.Connector{ID: "github", Kind: "github", Secrets: map[string]string{"token": "vault://kv/ci#token"}}})
	do(&command{SetConnector: &api.Connector{ID: "gone", Kind: "http"}})
	do(&command{DeleteConnector: &idCommand{"gone"}})
	d := do(&command{Register: &queue.Registration{NewID: "d", Name: "d"}}).id
	var stage api.StageRequest
	require.NoError(t, json.Unmarshal([]byte(`{"id":"s","pipeline":"p","labels":{"a":"b"},"retry":{"max_attempts":3,"on":["failure"]},
		"init":{"log_config":{"url":"http://127.0.0.1:9"},"log_key":"s/init"},"steps":[{"data":{"n":12345678901234567890}}]}`), &stage))
	n, err := m.newRun(t.Context(), "acc", stage)
	require.NoError(t, err)
	do(&command{SubmitStage: n})
	end := func(data string) {
		l, err := c.queue.List("acc", d, "")
		require.NoError(t, err)
		require.NotEmpty(t, l.Events)
		id := l.Events[len(l.Events)-1].TaskID
		do(&command{Acquire: &acquireCommand{d, id}})
		do(&command{Answer: &answerCommand{Delegate: d, Task: id, Code: task.OK, Data: json.RawMessage(data)}})
	}
	end(`{"command_execution_status":"FAILURE","error_message":"first"}`)
	end(`{}`) // the cleanup ends, so the stage starts again
	single, err := m.newTask("acc", &TaskRequest{Task: task.Task{ID: "t", Type: "custom"}, Retry: &api.Retry{MaxAttempts: 2, On: []string{retryOnFailure}}})
	require.NoError(t, err)
	do(&command{SubmitTask: single})
	end(`{"command_execution_status":"FAILURE"}`)
	require.Len(t, c.stages[key{"acc", "s"}].Attempts, 1)
	require.Equal(t, "t-2", c.tasks[key{"acc", "t"}].Current)
	return c, at
}

// Rule Q7: a core that was saved and loaded equals the original.
func TestACoreIsSavedAndLoaded(t *testing.T) {
	t.Parallel()
	c, at := busyCore(t)
	var saved, again bytes.Buffer
	require.NoError(t, c.Save(&saved))
	loaded := newCore(true)
	require.NoError(t, loaded.Load(bytes.NewReader(saved.Bytes())))
	require.NoError(t, loaded.Save(&again))
	assert.Equal(t, saved.String(), again.String())
	assert.Equal(t, c.schedules, loaded.schedules)
	require.Len(t, c.connectors, 1)
	assert.Equal(t, c.connectors, loaded.connectors)
	assert.Equal(t, c.attempts, loaded.attempts)
	assert.Equal(t, c.leader, loaded.leader)
	assert.Equal(t, c.set, loaded.set)
	assert.Equal(t, c.feeds["acc"].last, loaded.feeds["acc"].last)
	assert.Equal(t, c.queue.Limits("acc"), loaded.queue.Limits("acc"))
	assert.Contains(t, saved.String(), "12345678901234567890")

	for _, x := range []*core{c, loaded} { // both continue in the same way
		x.Apply(at.Add(time.Minute), &command{Tick: &struct{}{}}, false)
	}
	for _, id := range []string{"s", "t"} {
		then, err := c.queue.Place("acc", map[string]string{"s": "s", "t": "t-2"}[id])
		require.NoError(t, err)
		now, err := loaded.queue.Place("acc", map[string]string{"s": "s", "t": "t-2"}[id])
		require.NoError(t, err)
		assert.Equal(t, then, now)
	}
	saved.Reset()
	again.Reset()
	require.NoError(t, c.Save(&saved))
	require.NoError(t, loaded.Save(&again))
	assert.Equal(t, saved.String(), again.String())
}

// heldCore returns a core with an open stage that has a step of each state, and a finished
// one whose init waits.
func heldCore(t *testing.T) (c *core, at time.Time) {
	t.Helper()
	m, err := New(Config{Accounts: map[string]string{"acc": "00000000000000000000000000000001"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	c, at = newCore(true), time.Unix(1_700_000_000, 0).UTC()
	do := func(cmd *command) result {
		cmd.Account, at = "acc", at.Add(time.Second)
		b, err := c.Encode(cmd)
		require.NoError(t, err)
		decoded, err := c.Decode(b)
		require.NoError(t, err)
		r, ok := c.Apply(at, decoded, false).(result)
		require.True(t, ok)
		require.NoError(t, r.err)
		return r
	}
	set := m.cfg.settings()
	set.Epoch, set.HeartbeatTimeout, set.Gap = "epoch", time.Hour, 0
	do(&command{Configure: &set})
	d := do(&command{Register: &queue.Registration{NewID: "d", Name: "d"}}).id
	add := func(stage string, ids ...string) {
		like, err := c.openStage("acc", stage, nil)
		require.NoError(t, err)
		a := &appendCommand{ID: stage}
		for _, id := range ids {
			s, err := m.appendedStep(&like, "steps", &api.StepRequest{ID: id})
			require.NoError(t, err)
			a.Steps = append(a.Steps, s)
		}
		do(&command{AppendSteps: a})
	}
	for _, id := range []string{"s", "waits"} {
		n, err := m.newRun(t.Context(), "acc", api.StageRequest{ID: id, Hold: &api.Hold{LeaseMS: 600_000}, Steps: []api.StepRequest{{ID: "first"}}})
		require.NoError(t, err)
		do(&command{SubmitStage: n})
	}
	add("waits", "later")
	do(&command{FinishStage: &idCommand{"waits"}})
	end := func(part *step, data string) {
		do(&command{Acquire: &acquireCommand{d, part.TaskID}})
		if data != "" {
			do(&command{Answer: &answerCommand{Delegate: d, Task: part.TaskID, Code: task.OK, Data: json.RawMessage(data)}})
		}
	}
	n := c.stages[key{"acc", "s"}]
	end(&n.init, `{"command_execution_status":"SUCCESS"}`)
	add("s", "offered", "running", "failed", "aborted")
	end(n.step("running"), "")
	end(n.step("failed"), `{"command_execution_status":"FAILURE","exit_code":3}`)
	do(&command{AbortStep: &abortStepCommand{ID: "s", Step: "aborted"}})
	return c, at
}

// Rule Q7: both cores do the same when the lease ends.
func TestHeldStagesAreSavedAndLoaded(t *testing.T) {
	t.Parallel()
	c, at := heldCore(t)
	var saved, again bytes.Buffer
	require.NoError(t, c.Save(&saved))
	loaded := newCore(true)
	require.NoError(t, loaded.Load(bytes.NewReader(saved.Bytes())))
	require.NoError(t, loaded.Save(&again))
	assert.Equal(t, saved.String(), again.String())
	assert.Equal(t, map[string]int{"acc": 1}, loaded.open)
	assert.Equal(t, c.usage, loaded.usage)
	n, old := loaded.stages[key{"acc", "s"}], c.stages[key{"acc", "s"}]
	assert.Equal(t, old.view(), n.view())
	assert.Len(t, n.held.sent, 2)
	assert.Same(t, n.held.sent[n.step("running").TaskID], n.step("running"))
	for _, x := range []*core{c, loaded} {
		x.Apply(at.Add(10*time.Minute), &command{Tick: &struct{}{}}, false)
	}
	assert.Equal(t, api.FailureLeaseEnded, n.FailureKind)
	assert.Equal(t, "the lease of the held stage ended: its holder gave no sign for 10m0s", n.held.closed)
	saved.Reset()
	again.Reset()
	require.NoError(t, c.Save(&saved))
	require.NoError(t, loaded.Save(&again))
	assert.Equal(t, saved.String(), again.String())
}

// A truncated state, or one of a newer version, is refused and changes nothing.
func TestASavedCoreThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	c, _ := busyCore(t)
	var saved bytes.Buffer
	require.NoError(t, c.Save(&saved))
	for _, n := range []int{0, 1, 100, saved.Len() / 2, saved.Len() - 1} {
		x, _ := busyCore(t)
		require.Error(t, x.Load(bytes.NewReader(saved.Bytes()[:n])), n)
		assert.Len(t, x.stages, 1)
		assert.Len(t, x.schedules, 1)
	}
	later := strings.Replace(saved.String(), `"version":1`, `"version":9`, 1)
	require.ErrorContains(t, newCore(true).Load(strings.NewReader(later)), "version 9")
}
