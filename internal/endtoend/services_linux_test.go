package endtoend_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// Rules Q1, Q7: three processes of the bundled pipeline service share one PostgreSQL, one Redis and one manager. One of
// them is stopped while runs are active, so that Redis still delivers messages to it, and is killed. The others end all
// runs, and each attempt of each step runs once.
func TestPipelineServicesEndTheRunsOfAKilledOne(t *testing.T) {
	t.Parallel()
	const runs = 12
	s := newRig(t, rigConfig{mortal: true, directLogs: true, settings: []string{"TRUSTED_STEPS=true", "MAX_STAGES=16"}})
	accounts, err := os.ReadFile(filepath.Join(s.dir, "manager.env"))
	require.NoError(t, err)
	settings := filepath.Join(s.dir, "pipelines.env")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(accounts, "MANAGER_URL=%s\nPIPELINES_DATABASE=%s\nPIPELINES_REDIS=%s\n",
		s.address, testbed.Postgres(t).URL, testbed.Redis(t).URL()), 0o600))
	built := testbed.BuildStatic(t, "./examples/pipelines")
	m, d := s.mortals(t)
	services := make([]*mortal, 3)
	through := make([]*rig, len(services)) // calls each service
	for i := range services {
		address := "127.0.0.1:" + freePort(t)
		services[i] = &mortal{t: t, path: filepath.Join(s.dir, fmt.Sprint("pipelines-", i)), args: []string{"server", "--listen", address, "--http-bind", "off", "--env-file", settings}}
		require.NoError(t, os.Link(built, services[i].path))
		through[i] = &rig{programs: s.programs, address: "http://" + address}
		services[i].start()
	}
	effects := t.TempDir() // trusted steps can write to it
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ended := make([]api.Run, runs)
	var running sync.WaitGroup
	for n := range ended {
		id := fmt.Sprint("r", n)
		require.NoError(t, through[n%len(through)].startRun(ctx, id, filepath.Join(effects, id)))
		running.Go(func() {
			var err error
			ended[n], err = through[n%2].awaitRun(ctx, id) // at a service that is not killed
			assert.NoError(t, err)
		})
	}
	victim := services[2].cmd
	awaitFiles(ctx, t, effects, runs/2)
	require.NoError(t, victim.Process.Signal(syscall.SIGSTOP))
	awaitFiles(ctx, t, effects, runs)
	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())
	running.Wait()
	for n := range ended {
		assert.Equal(t, "SUCCEEDED", ended[n].Status, reasons(ended[n]))
		checkMortalRun(t, &ended[n], filepath.Join(effects, ended[n].ID))
	}
	s.checkNothingIsLeft(ctx, t)
	d.stop()
	for _, one := range services[:2] {
		one.stop()
	}
	m.stop()
}

// awaitFiles waits until a folder has a number of files.
func awaitFiles(ctx context.Context, t *testing.T, dir string, n int) {
	t.Helper()
	for len(filesBelow(t, dir)) < n {
		select {
		case <-ctx.Done():
			t.Fatalf("%s has fewer than %d files", dir, n)
		case <-time.After(20 * time.Millisecond): // the steps write them
		}
	}
}
