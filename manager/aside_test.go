package manager

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/manager/sqlite"
	"github.com/delegate-io/dlite/task"
)

// A command that makes the core panic fails alone. The manager continues, starts again,
// and says which command it was, without its payload.
func TestACommandThatPanicsStopsNoManager(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	file := filepath.Join(t.TempDir(), "db")
	open := func() *Manager {
		store, err := sqlite.Open(t.Context(), file, sqlite.Config{})
		require.NoError(t, err)
		m, err := New(Config{
			Accounts: map[string]string{"acc": "00000000000000000000000000000001"},
			Store:    store, StoreUnsealed: true, Logger: zerolog.New(&log),
		})
		require.NoError(t, err)
		return m
	}
	m := open()
	submit := func(id string) error {
		_, err := m.SubmitTask(t.Context(), "acc", TaskRequest{Task: task.Task{ID: id, Type: "custom"}})
		return err
	}
	require.NoError(t, submit("before"))
	_, err := m.applyCommand(t.Context(), &command{Account: "acc", SubmitTask: &submitTaskCommand{}}) // without a task
	require.ErrorIs(t, err, journal.ErrSetAside)
	require.NoError(t, submit("after"))
	require.NoError(t, m.Ready(t.Context()))
	require.NoError(t, m.Close())
	assert.Contains(t, log.String(), `"command":"submit_task acc"`)
	assert.Contains(t, log.String(), "nil pointer dereference")
	log.Reset()

	m = open()
	for _, id := range []string{"before", "after"} {
		_, err := m.Task("acc", id)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, m.storeStats().SetAside)
	assert.Contains(t, log.String(), "A command of the store was set aside because it panicked")
	assert.NotContains(t, log.String(), "nil pointer", "it does not panic again")
	require.NoError(t, m.Close())
}

// A manager starts with other settings while stages are queued whose logs say why they wait.
func TestAManagerStartsWithOtherSettingsAndQueuedStages(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "db")
	open := func(maxFinished int) *Manager {
		store, err := sqlite.Open(t.Context(), file, sqlite.Config{})
		require.NoError(t, err)
		m, err := New(Config{
			Accounts: map[string]string{"acc": "00000000000000000000000000000001"}, LogURLs: []string{"http://127.0.0.1:9"},
			Store: store, StoreUnsealed: true, MaxFinished: maxFinished,
		})
		require.NoError(t, err)
		return m
	}
	m := open(10)
	_, err := m.SubmitStage(t.Context(), "acc", api.StageRequest{ID: "s", Init: []byte(`{"log_config":{"url":"http://127.0.0.1:9"},"log_key":"k"}`), Steps: []api.StepRequest{{}}})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	m = open(20)
	st, err := m.Stage("acc", "s")
	require.NoError(t, err)
	assert.Equal(t, api.Queued, st.Status)
	require.NoError(t, m.Close())
}

// A store may have answers that an older version accepted as successful. Executing them
// again must have the same result.
func TestAnAnswerOfAnOlderVersionKeepsItsResult(t *testing.T) {
	t.Parallel()
	old := answerCommand{Code: task.OK, Data: []byte(`{}`)}
	assert.Equal(t, queue.Success, parseAnswer(task.TypeDockerExecute, &old).Outcome)
	old.NeedsStatus = true
	assert.Equal(t, queue.Failure, parseAnswer(task.TypeDockerExecute, &old).Outcome)
}
