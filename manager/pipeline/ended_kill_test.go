package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/sqlite"
)

// The variables that make the test program a service, which the test kills.
const (
	victimManager  = "DLITE_TEST_HISTORY_MANAGER"
	victimDatabase = "DLITE_TEST_HISTORY_DATABASE"
)

// victim is a service in its own process. It runs until it is killed.
func victim(url string) {
	ctx := context.Background()
	remote, err := pipeline.NewRemote(pipeline.RemoteConfig{URLs: []string{url}, Accounts: map[string]string{account: secret}})
	if err == nil {
		_, err = pipeline.New(ctx, pipeline.Config{Manager: remote, Database: os.Getenv(victimDatabase)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func numbered(first, last int) (ids []string) {
	for i := first; i <= last; i++ {
		ids = append(ids, fmt.Sprintf("s%04d", i))
	}
	return ids
}

// assertOnce fails unless the stages are those with ids, once each, the last one first, and none was
// lost.
func assertOnce(t *testing.T, s *pipeline.Service, ids []string) {
	t.Helper()
	all := written(t, s, len(ids))
	seen := map[string]bool{}
	for _, st := range all {
		seen[st.ID] = true
	}
	for _, id := range ids {
		assert.True(t, seen[id], id)
	}
	days, err := s.Outcomes(t.Context(), account, "stages", "", time.Time{}, time.Time{})
	require.NoError(t, err)
	ended := 0
	for _, d := range days {
		ended += d.Ended
	}
	assert.Equal(t, len(ids), ended)
	page, err := s.EndedStages(t.Context(), account, api.RunFilter{})
	require.NoError(t, err)
	assert.Zero(t, page.Lost)
}

// Processes that write the history are killed with SIGKILL while they write a section: each stage is
// written and counted once.
func TestTheHistorySurvivesKills(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	ids := numbered(1, 1200)
	submitEnded(t, m, ids...)
	kill := make(chan struct{}, 1)
	var after atomic.Int64 // sections until the kill
	server := serveManager(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.ServeHTTP(w, r)
		if strings.HasPrefix(r.URL.Path, "/api/ended-stages") && after.Add(-1) == 0 {
			time.AfterFunc(time.Duration(rand.IntN(30))*time.Millisecond, func() { kill <- struct{}{} }) //nolint:gosec // a test
		}
	}))
	database := filepath.Join(t.TempDir(), "pipelines.db")
	const kills = 4
	for range kills {
		after.Store(int64(2 + rand.IntN(2))) //nolint:gosec // a test; the first call is for the epoch
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), victimManager+"="+server.URL, victimDatabase+"="+database)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-kill:
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, <-ended)
		case err := <-ended:
			require.FailNow(t, "the process has failed", err)
		}
	}
	assertOnce(t, newService(t, newRemote(t, server.URL), func(c *pipeline.Config) { c.Database = database }), ids)
}

// Stages end while the database is away. Afterwards the service writes each of them once.
func TestTheHistoryCatchesUpAfterTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	database := testbed.Postgres(t)
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	s := newService(t, m, func(c *pipeline.Config) { c.Database = database.URL })
	submitEnded(t, m, numbered(1, 10)...)
	written(t, s, 10)
	database.Kill()
	submitEnded(t, m, numbered(11, 500)...)
	database.Start(t)
	submitEnded(t, m, numbered(501, 510)...)
	assertOnce(t, s, numbered(1, 510))
}

// A manager that is started again on its store continues its list, and Remote returns the list as
// the manager has it.
func TestTheListContinuesAfterARestartOfTheManager(t *testing.T) {
	t.Parallel()
	file, database := filepath.Join(t.TempDir(), "manager.db"), filepath.Join(t.TempDir(), "pipelines.db")
	epoch := ""
	for round := range 2 {
		log, err := sqlite.Open(t.Context(), file, sqlite.Config{})
		require.NoError(t, err)
		m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, Store: log, StoreUnsealed: true})
		require.NoError(t, err)
		remote := newRemote(t, serveManager(t, m).URL)
		s := newService(t, remote, func(c *pipeline.Config) { c.Database = database })
		submitEnded(t, m, numbered(5*round+1, 5*round+5)...)
		assertOnce(t, s, numbered(1, 5*round+5))

		direct, err := m.EndedStages(t.Context(), account, uint64(round), 3) //nolint:gosec // small
		require.NoError(t, err)
		page, err := remote.EndedStages(t.Context(), account, uint64(round), 3) //nolint:gosec // small
		require.NoError(t, err)
		require.Len(t, page.Stages, 3)
		for i, st := range page.Stages {
			assert.Equal(t, fmt.Sprintf("s%04d", round+1+i), st.Stage.ID)
			assert.Equal(t, direct.Stages[i].Stage.Status, st.Stage.Status)
		}
		assert.Equal(t, uint64(round+3), page.Next)   //nolint:gosec // small
		assert.Equal(t, uint64(5*round+5), page.Last) //nolint:gosec // small
		if round > 0 {
			assert.Equal(t, epoch, page.Epoch)
		}
		epoch = page.Epoch
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
	}
}
