package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

func TestAFeedSendsTheLastStateOfEachRunOnce(t *testing.T) {
	t.Parallel()
	s := &Service{runFeeds: map[string]map[*runFeed]bool{}, newest: map[string]*newestRuns{}, changed: map[runKey]*watch{}}
	f, end, err := s.openRunFeed("acc")
	require.NoError(t, err)
	change := func(id string, version int64) {
		s.announceChange(&store.Run{Account: "acc", ID: id, Version: version, Created: time.Unix(1, 0), State: []byte("{}")})
	}
	change("b", 1)
	change("a", 2)
	change("b", 3)
	change("b", 2) // late
	s.announceChange(&store.Run{Account: "other", ID: "c", Version: 1})
	text, err := s.runMessages(f)
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(text, "data: "), text)
	assert.Less(t, strings.Index(text, `"id":"a"`), strings.Index(text, `"id":"b"`))
	assert.Contains(t, text, `"version":3`)
	text, err = s.runMessages(f)
	require.NoError(t, err)
	assert.Empty(t, text)

	for i := range mostWaiting + 1 {
		change(fmt.Sprint("r", i), 1)
	}
	text, err = s.runMessages(f)
	require.NoError(t, err)
	assert.Equal(t, "event: missed\ndata: {}\n\n", text)
	change("b", 4)
	text, err = s.runMessages(f)
	require.NoError(t, err)
	assert.Contains(t, text, `"version":4`)

	var ends []func()
	for range mostRunFeeds - 1 {
		_, end, err := s.openRunFeed("acc")
		require.NoError(t, err)
		ends = append(ends, end)
	}
	_, _, err = s.openRunFeed("acc")
	require.ErrorIs(t, err, ErrBudget)
	for _, end := range append(ends, end) {
		end()
	}
	assert.Empty(t, s.runFeeds)
}

func TestARunThatEndsAtOnceIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newInside(t)
	f, end, err := s.openRunFeed("acme")
	require.NoError(t, err)
	defer end()
	_, err = s.Start(t.Context(), "acme", api.RunRequest{YAML: "pipeline: {identifier: p, name: p, stages: [{stage: {identifier: s, name: s, type: CI, when: {pipelineStatus: Success, condition: \"false\"}, " +
		"spec: {runtime: {type: Docker, spec: {}}, execution: {steps: [{step: {identifier: a, name: a, type: Run, spec: {command: echo}}}]}}}}]}"})
	require.NoError(t, err)
	<-f.wake
	text, err := s.runMessages(f)
	require.NoError(t, err)
	assert.Contains(t, text, `"status":"SUCCEEDED"`)
}

// newInside returns a service with a manager in memory.
func newInside(t *testing.T) *Service {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"acme": "00000000000000000000000000000001"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	s, err := New(t.Context(), Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestOtherProcessesChangeRunsToo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	st, err := store.Open(ctx, t.TempDir()+"/runs.db")
	require.NoError(t, err)
	defer func() { assert.NoError(t, st.Close()) }()
	s := &Service{store: st, runFeeds: map[string]map[*runFeed]bool{}, newest: map[string]*newestRuns{}, changed: map[runKey]*watch{}}
	f, end, err := s.openRunFeed("acc")
	require.NoError(t, err)
	defer end()
	run := &store.Run{Account: "acc", ID: "a", Pipeline: "p", Status: "RUNNING", Created: time.Now(), Version: 1, State: []byte("{}"), Definition: []byte("{}")}
	require.NoError(t, st.Update(ctx, func(tx *store.Tx) error { return tx.Create(run, nil) }))
	read := func() string {
		t.Helper()
		if n := s.newest["acc"]; n != nil {
			n.at = time.Time{}
		}
		require.NoError(t, s.readNewest(ctx, "acc"))
		text, err := s.runMessages(f)
		require.NoError(t, err)
		return text
	}
	assert.Empty(t, read(), "the client reads the runs itself when the feed begins")
	assert.Empty(t, read(), "nothing has changed")
	require.NoError(t, st.Update(ctx, func(tx *store.Tx) error {
		r, err := tx.Lock("acc", "a")
		if err != nil {
			return err
		}
		r.Version, r.Status = 2, "FAILED"
		return tx.Save(r, nil)
	}))
	assert.Contains(t, read(), `"status":"FAILED"`)
}
