package pipeline_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// A full disk refuses new runs. Runs in progress wait for space, and each of their steps runs once.
func TestRunsWaitWhileTheDiskOfTheDatabaseIsFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4m"); errors.Is(err, syscall.EPERM) {
		testbed.Unavailable(t, "root", "a small file system cannot be mounted: %v", err)
	} else {
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })

	refused := make(notice)
	cfg := pipeline.Config{Manager: newManager(t, 2, func(c *host.Config) { c.Trusted = true }), Database: filepath.Join(dir, "pipelines.db"), Logger: zerolog.New(refused)}
	s, err := pipeline.New(t.Context(), pipeline.Tuned(cfg, time.Second, 0, false))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	url := serve(t, s)

	work := t.TempDir()
	goOn, traces := filepath.Join(work, "go-on"), filepath.Join(work, "traces")
	var runs []api.Run
	for range 2 {
		r := start(t, s, oneStage("one", strings.NewReplacer("GO", goOn, "TRACES", traces).Replace(`
              - step: {identifier: first, name: first, type: Run, spec: {command: "while [ ! -e GO ]; do sleep 0.05; done; echo first >> TRACES"}}
              - step: {identifier: second, name: second, type: Run, spec: {command: "echo second >> TRACES"}}
`)))
		runs = append(runs, r)
	}
	for _, r := range runs {
		waitFor(t, s, r.ID, func(r api.Run) bool { return strings.Contains(tree(r), ".first RUNNING") })
	}

	fill(t, filepath.Join(dir, "ballast"))
	accepted := 0
	request := encode(t, api.RunRequest{YAML: oneStep("true")})
	status, body := call(t, "POST", url+"/api/runs", request)
	for ; status == 202; accepted++ { // the journal of SQLite may have room of earlier transactions
		status, body = call(t, "POST", url+"/api/runs", request)
	}
	assert.Equal(t, 503, status, body)
	assert.Contains(t, body, "the disk of the database is full and nothing was written: free some space")

	require.NoError(t, os.WriteFile(goOn, nil, 0o600)) // the end of the step cannot be written
	for line := range refused {
		if strings.Contains(line, "the disk of the database is full") {
			break
		}
	}
	r, err := s.Run(t.Context(), account, runs[0].ID)
	require.NoError(t, err, "a full disk can be read")
	assert.Zero(t, r.EndedAt, tree(r))

	require.NoError(t, os.Remove(filepath.Join(dir, "ballast")))
	for _, r := range runs {
		r = waitFor(t, s, r.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
		assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	}
	written, err := os.ReadFile(traces)
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(written, []byte("first\n")), "%s", written)
	assert.Equal(t, 2, bytes.Count(written, []byte("second\n")), "%s", written)
	page, err := s.Runs(t.Context(), account, api.RunFilter{Limit: 50})
	require.NoError(t, err)
	require.Len(t, page.Runs, 2+accepted, "a run exists if its start was accepted")
	for _, r := range page.Runs {
		r = waitFor(t, s, r.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
		assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	}

	db, err := sql.Open("sqlite", cfg.Database)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	var sound string
	require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&sound))
	assert.Equal(t, "ok", sound)
}

// notice receives lines of a log if there is a receiver.
type notice chan string

func (n notice) Write(line []byte) (int, error) {
	select {
	case n <- string(line):
	default:
	}
	return len(line), nil
}

// fill writes a file until its file system is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	for {
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return
		}
	}
}
