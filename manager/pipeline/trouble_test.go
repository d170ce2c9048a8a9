package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

func oneStep(command string) string {
	return oneStage("one", "              - step: {identifier: only, name: only, type: Run, spec: {command: \""+command+"\"}}\n")
}

// troubled is a manager whose SubmitStage a test replaces.
type troubled struct {
	*manager.Manager

	submit func(ctx context.Context) error // nil or an error leave out the manager's
	full   atomic.Bool
	stages atomic.Int64 // calls of Stage
	missed bool
}

func (m *troubled) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	if m.full.Load() {
		return api.Stage{}, fmt.Errorf("%w: stages of the account", manager.ErrBudget)
	}
	if m.submit != nil {
		if err := m.submit(ctx); err != nil {
			return api.Stage{}, err
		}
	}
	return m.Manager.SubmitStage(ctx, account, req)
}

func (m *troubled) Stage(account, id string) (api.Stage, error) {
	m.stages.Add(1)
	return m.Manager.Stage(account, id)
}

func (m *troubled) Events(account string, after uint64) manager.Feed {
	feed := m.Manager.Events(account, after)
	if m.missed {
		feed.Events, feed.Missed = nil, true
	}
	return feed
}

// waitFor waits until a run is as enough wants it.
func waitFor(tb testing.TB, s *pipeline.Service, id string, enough func(api.Run) bool) api.Run {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	version := int64(0)
	for {
		r, err := s.Run(ctx, account, id)
		require.NoError(tb, err)
		if enough(r) {
			return r
		}
		if _, err := s.Changes(ctx, account, id, version); err != nil {
			tb.Fatalf("%v\n%s", err, tree(r))
		}
		version = r.Version
	}
}

func start(tb testing.TB, s *pipeline.Service, yaml string) api.Run {
	tb.Helper()
	r, err := s.Start(tb.Context(), account, api.RunRequest{YAML: yaml})
	require.NoError(tb, err)
	return r
}

func TestAStageWaitsWithAReasonWhileTheBudgetOfTheManagerIsUsedUp(t *testing.T) {
	t.Parallel()
	m := &troubled{Manager: newManager(t, 1)}
	m.full.Store(true)
	s := newService(t, m, func(c *pipeline.Config) { c.Lease = time.Second }) // leases are renewed many times while the stage waits
	first, second := start(t, s, oneStep("true")), start(t, s, oneStep("true"))
	for _, r := range []api.Run{first, second} {
		r = waitFor(t, s, r.ID, func(r api.Run) bool { return strings.Contains(node(t, r, ".build").Reason, "budget") })
		assert.Equal(t, "QUEUED", node(t, r, ".build").Status)
	}
	_, err := s.Abort(t.Context(), account, first.ID, api.Order{By: "a test"})
	require.NoError(t, err)
	r := waitFor(t, s, first.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
	assert.Equal(t, "ABORTED", r.Status, "an abort must not wait for the budget\n%s", tree(r))
	m.full.Store(false)
	r = waitFor(t, s, second.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	assert.Empty(t, node(t, r, ".build").Reason)
}

func TestAClosedServiceLeavesItsMessagesToTheNextOneAtOnce(t *testing.T) {
	t.Parallel()
	m := newManager(t, 1)
	called := make(chan struct{})
	var once sync.Once
	stuck := &troubled{Manager: m, submit: func(ctx context.Context) error {
		once.Do(func() { close(called) })
		<-ctx.Done()
		return ctx.Err()
	}}
	cfg := pipeline.Config{Manager: stuck, Database: filepath.Join(t.TempDir(), "pipelines.db")}
	s, err := pipeline.New(t.Context(), pipeline.Tuned(cfg, time.Hour, 0, false))
	require.NoError(t, err)
	r := start(t, s, oneStep("true"))
	<-called
	require.NoError(t, s.Close())
	next := newService(t, m, func(c *pipeline.Config) { c.Database = cfg.Database })
	r = waitFor(t, next, r.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
}

func TestARunEndsWhenTheHandlerOfItsMessageAlwaysPanics(t *testing.T) {
	t.Parallel()
	m := &troubled{Manager: newManager(t, 1), submit: func(context.Context) error { panic("a defect") }}
	cfg := pipeline.Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")}
	s, err := pipeline.New(t.Context(), pipeline.Tuned(cfg, time.Minute, 3, false))
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	r := run(t, s, oneStep("true"))
	assert.Equal(t, "ERRORED", r.Status, tree(r))
	assert.Equal(t, "the service failed internally: a defect", r.Reason)
}

func TestARunWhoseDefinitionCannotBeReadAnyMoreEndsWithTheReason(t *testing.T) {
	t.Parallel()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		definition []byte
		reason     string
	}{
		"a pipeline that this version refuses": {w.EncodeAll([]byte(`{"source":{"Name":"p.yaml","Text":"cGlwZWxpbmU6IDE="}}`), nil), "reading the pipeline of run"},
		"a damaged row":                        {[]byte("no zstd"), "decoding run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newManager(t, 1)
			database := filepath.Join(t.TempDir(), "pipelines.db")
			first, err := pipeline.New(t.Context(), pipeline.Config{Manager: m, Database: database})
			require.NoError(t, err)
			r := start(t, first, oneStep("sleep 1000"))
			r = waitFor(t, first, r.ID, func(r api.Run) bool { return strings.Contains(tree(r), ".only RUNNING") })
			require.NoError(t, first.Close())
			db, err := sql.Open("sqlite", database)
			require.NoError(t, err)
			_, err = db.ExecContext(t.Context(), `UPDATE runs SET definition = ?`, test.definition)
			require.NoError(t, err)
			require.NoError(t, db.Close())
			_, err = m.AbortStage(t.Context(), account, node(t, r, ".build").StageID) // an event for the run
			require.NoError(t, err)
			cfg := pipeline.Config{Manager: m, Database: database}
			s, err := pipeline.New(t.Context(), pipeline.Tuned(cfg, time.Minute, 3, false))
			require.NoError(t, err)
			defer func() { assert.NoError(t, s.Close()) }()
			r = waitFor(t, s, r.ID, func(r api.Run) bool { return !r.EndedAt.IsZero() })
			assert.Equal(t, "ERRORED", r.Status, tree(r))
			assert.Contains(t, r.Reason, test.reason)
			assert.Equal(t, "ERRORED", node(t, r, ".only").Status)
		})
	}
}

func TestARunEndsAlthoughTheEventsOfTheManagerAreMissed(t *testing.T) {
	t.Parallel()
	s := newService(t, &troubled{Manager: newManager(t, 1), missed: true})
	r := run(t, s, oneStep("true"))
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
}

func TestEventsOfStepsDoNotReadTheirWholeStage(t *testing.T) {
	t.Parallel()
	m := &troubled{Manager: newManager(t, 1)}
	var steps strings.Builder
	for i := range 20 {
		fmt.Fprintf(&steps, "              - step: {identifier: s%d, name: s%d, type: Run, spec: {command: \"true\"}}\n", i, i)
	}
	r := run(t, newService(t, m), oneStage("one", steps.String()))
	assert.Equal(t, "SUCCEEDED", r.Status, tree(r))
	assert.Less(t, m.stages.Load(), int64(15))
}

// forgetful is a manager that opens the stage build without an answer. The stage fails at once, and the manager forgets it
// after the service has read it. The stage slow does not open.
type forgetful struct {
	*instant

	submits atomic.Int64
}

func (m *forgetful) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	if strings.HasSuffix(req.ID, ".slow") {
		return api.Stage{ID: req.ID}, nil
	}
	m.submits.Add(1)
	_, err := m.instant.SubmitStage(ctx, account, req)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stages[req.ID].Status, m.stages[req.ID].Error = api.Failure, "the init failed"
	m.publish(req.ID, "")
	return api.Stage{}, errors.Join(err, errors.New("the answer was lost"))
}

func (m *forgetful) Stage(account, id string) (api.Stage, error) {
	st, err := m.instant.Stage(account, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if st.Status.Ended() {
		delete(m.stages, id)
	}
	return st, err
}

func TestAStageThatTheManagerHasForgottenDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	const stage = `{identifier: NAME, name: NAME, type: CI, spec: {platform: {os: Linux, arch: Amd64}, runtime: {type: Docker, spec: {}},
            execution: {steps: [{step: {identifier: s, name: s, type: Run, spec: {command: "true"}}}]}}}`
	m := &forgetful{instant: newInstant()}
	database := filepath.Join(t.TempDir(), "pipelines.db")
	s := newService(t, m, func(c *pipeline.Config) { c.Database = database })
	r := start(t, s, `
pipeline:
  identifier: p
  name: p
  stages:
    - parallel:
        - stage: `+strings.ReplaceAll(stage, "NAME", "build")+`
        - stage: `+strings.ReplaceAll(stage, "NAME", "slow")+"\n")
	waitFor(t, s, r.ID, func(r api.Run) bool { return strings.Contains(tree(r), "build FAILED") }) // the other stage keeps the run
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	require.Eventually(t, func() bool {
		var left int
		return db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM messages WHERE topic = 'commands'`).Scan(&left) == nil && left == 0
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(1), m.submits.Load())
}
