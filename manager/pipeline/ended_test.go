package pipeline_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// submitEnded submits stages that end at once, because they are aborted while they wait.
func submitEnded(tb testing.TB, m *manager.Manager, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		_, err := m.SubmitStage(tb.Context(), account, api.StageRequest{ID: id, Selectors: []string{"nowhere"}})
		require.NoError(tb, err)
		_, err = m.AbortStage(tb.Context(), account, id)
		require.NoError(tb, err)
	}
}

// written waits until the history has a number of stages, and returns them, the last one first.
func written(tb testing.TB, s *pipeline.Service, n int) (all []api.EndedStage) {
	tb.Helper()
	require.EventuallyWithT(tb, func(c *assert.CollectT) {
		all = nil
		for f := (api.RunFilter{}); ; {
			page, err := s.EndedStages(tb.Context(), account, f)
			require.NoError(c, err)
			all = append(all, page.Stages...)
			if f.Page = page.Next; f.Page == "" {
				break
			}
		}
		require.Len(c, all, n)
	}, 30*time.Second, 10*time.Millisecond)
	return all
}

// Stages that were submitted to the manager are kept with the runs and found by each filter. The
// stages of runs are not: they are nodes of their run, which is found by their delegate.
func TestStagesWithoutARunAreKept(t *testing.T) {
	t.Parallel()
	m := newManager(t, 2)
	s := newService(t, m)
	r := run(t, s, hello, func(r *api.RunRequest) { r.ID = "one" })
	require.Equal(t, "SUCCEEDED", r.Status, tree(r))
	_, err := m.SubmitStage(t.Context(), account, api.StageRequest{
		ID: "a/b", Name: "Build of Web", Pipeline: "web", Labels: map[string]string{"branch": "main", "team": "red", "run": "none"},
		Steps: []api.StepRequest{{ID: "test", Data: json.RawMessage(`{"run":{"commands":["exit 3"],"entrypoint":["sh","-ec"]}}`)}},
	})
	require.NoError(t, err)
	ended, err := m.WaitStage(t.Context(), account, "a/b")
	require.NoError(t, err)
	require.Equal(t, api.Failure, ended.Status, ended.Error)
	submitEnded(t, m, "other")
	all := written(t, s, 2)
	assert.Equal(t, "other", all[0].ID)
	assert.Zero(t, all[0].StartedAt)
	got := all[1]
	assert.Equal(t, api.EndedStage{
		ID: "a/b", Name: "Build of Web", Pipeline: "web", Status: api.Failure, Branch: "main", Labels: ended.Labels, Infra: "local", Delegate: "d",
		DelegateID: ended.DelegateID, Error: ended.Error, FailureKind: api.FailureExitCode,
		SubmittedAt: ended.SubmittedAt.UTC(), StartedAt: ended.StartedAt.UTC(), EndedAt: ended.EndedAt.UTC(), Duration: ended.EndedAt.Sub(ended.StartedAt).Milliseconds(),
	}, utc(got))

	base := serve(t, s)
	for query, want := range map[string]string{
		"pipeline=web": "a/b", "status=ABORTED": "other", "branch=main": "a/b", "delegate=d": "a/b", "label=team%3Dred": "a/b", "text=buil+red": "a/b", "text=other": "other",
		"pipeline=none": "", "text=uild": "", "label=team%3Dblue": "", "after=" + url.QueryEscape(ended.EndedAt.Add(time.Hour).Format(time.RFC3339)): "",
		"limit=1": "other", "pipeline=web&status=FAILURE&branch=main&delegate=d&text=web": "a/b",
	} {
		status, body := call(t, "GET", base+"/api/history/stages?"+query, "")
		require.Equal(t, 200, status, body)
		var page api.EndedPage
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		ids := []string{}
		for _, st := range page.Stages {
			ids = append(ids, st.ID)
		}
		assert.Equal(t, want, strings.Join(ids, " "), query)
	}
	for query, problem := range map[string]string{"text=--": "text has no letter", "page=x": "page is not", "state=x": "unknown parameter", "limit=99": "limit", "pipeline=%00": "is not text"} {
		status, body := call(t, "GET", base+"/api/history/stages?"+query, "")
		assert.Equal(t, 400, status, body)
		assert.Contains(t, body, problem)
	}
	status, body := call(t, "GET", base+"/api/history/stages/a%2Fb", "")
	require.Equal(t, 200, status, body)
	var whole api.Stage
	require.NoError(t, json.Unmarshal([]byte(body), &whole))
	assert.Equal(t, 3, whole.Steps[0].ExitCode, "%+v", whole.Steps[0])
	status, _ = call(t, "GET", base+"/api/history/stages/none", "")
	assert.Equal(t, 404, status)

	status, body = call(t, "GET", base+"/api/history/outcomes?of=stages", "")
	require.Equal(t, 200, status, body)
	var outcomes struct{ Days []api.Outcomes }
	require.NoError(t, json.Unmarshal([]byte(body), &outcomes))
	require.NotEmpty(t, outcomes.Days)
	assert.Equal(t, map[string]int{"FAILURE": 1, "ABORTED": 1}, outcomes.Days[0].Statuses)
	assert.InDelta(t, got.Duration, outcomes.Days[0].P50, 1+0.05*float64(got.Duration))
	runs, err := s.Outcomes(t.Context(), account, "runs", r.Pipeline, time.Time{}, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, 1, runs[0].Ended)
	byDelegate, err := s.Runs(t.Context(), account, api.RunFilter{Delegate: "d"})
	require.NoError(t, err)
	require.Len(t, byDelegate.Runs, 1)
	assert.Equal(t, "one", byDelegate.Runs[0].ID)
}

func utc(st api.EndedStage) api.EndedStage {
	st.SubmittedAt, st.StartedAt, st.EndedAt = st.SubmittedAt.UTC(), st.StartedAt.UTC(), st.EndedAt.UTC()
	return st
}

// away is a manager whose list of ended stages cannot be read while it is closed.
type away struct {
	*manager.Manager
	closed atomic.Bool
}

func (a *away) EndedStages(ctx context.Context, account string, after uint64, limit int) (api.NumberedStages, error) {
	if a.closed.Load() {
		return api.NumberedStages{}, errors.New("it is away")
	}
	return a.Manager.EndedStages(ctx, account, after, limit)
}

// newForgetful starts a manager that remembers three ended stages and has no delegate.
func newForgetful(tb testing.TB) *manager.Manager {
	tb.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}, MaxFinished: 3})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, m.Close()) })
	return m
}

// Stages that the manager forgot before they could be written are counted, and the others are
// written. Stages that it forgot before the history began are not counted.
func TestForgottenStagesAreCounted(t *testing.T) {
	t.Parallel()
	a := &away{Manager: newForgetful(t)}
	submitEnded(t, a.Manager, "1", "2", "3", "4", "5")
	s := newService(t, a)
	lost := func() uint64 {
		page, err := s.EndedStages(t.Context(), account, api.RunFilter{})
		require.NoError(t, err)
		return page.Lost
	}
	written(t, s, 3)
	assert.Zero(t, lost())
	a.closed.Store(true)
	submitEnded(t, a.Manager, "a", "b", "c", "d", "e")
	a.closed.Store(false)
	all := written(t, s, 6)
	assert.Equal(t, "e", all[0].ID)
	assert.Equal(t, uint64(2), lost())
}

// A history that began before the first stage ended misses the stages that the manager forgot.
func TestForgottenStagesAreCountedFromAnEmptyList(t *testing.T) {
	t.Parallel()
	a := &away{Manager: newForgetful(t)}
	database := filepath.Join(t.TempDir(), "pipelines.db")
	began := newService(t, a, func(c *pipeline.Config) { c.Database = database })
	require.Eventually(t, func() bool { return listed(t, database) }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, began.Close())
	submitEnded(t, a.Manager, "a", "b", "c", "d", "e")
	s := newService(t, a, func(c *pipeline.Config) { c.Database = database })
	written(t, s, 3)
	page, err := s.EndedStages(t.Context(), account, api.RunFilter{})
	require.NoError(t, err)
	assert.Equal(t, uint64(2), page.Lost)
}

// listed reports whether a database has a position in a list of ended stages.
func listed(tb testing.TB, database string) bool {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(10000)")
	require.NoError(tb, err)
	defer func() { assert.NoError(tb, db.Close()) }()
	var n int
	require.NoError(tb, db.QueryRowContext(tb.Context(), `SELECT COUNT(*) FROM cursors`).Scan(&n))
	return n > 0
}
