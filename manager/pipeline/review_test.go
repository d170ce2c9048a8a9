package pipeline_test

import (
	"context"
	"errors"
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

// fullManager refuses stages until it is told that there is room.
type fullManager struct {
	*manager.Manager

	room    atomic.Bool
	refused chan time.Time
}

func (f *fullManager) SubmitStage(ctx context.Context, account string, req api.StageRequest) (api.Stage, error) {
	if f.room.Load() {
		return f.Manager.SubmitStage(ctx, account, req)
	}
	select {
	case f.refused <- time.Now():
	case <-ctx.Done():
	}
	return api.Stage{}, errors.New("the queue is full")
}

func TestAStageThatWaitsForRoomAtTheManagerIsNotLost(t *testing.T) {
	t.Parallel()
	full := &fullManager{Manager: newManager(t, 2), refused: make(chan time.Time)}
	s := newService(t, full)
	started, err := s.Start(t.Context(), account, api.RunRequest{YAML: hello})
	require.NoError(t, err)
	earlier := <-full.refused
	for range 2 { // the tries before this one have ended
		next := <-full.refused
		require.NoError(t, s.RenewBefore(t.Context(), earlier))
		earlier = next
	}
	full.room.Store(true)
	ended, err := s.Wait(t.Context(), account, started.ID)
	require.NoError(t, err)
	assert.Equal(t, "SUCCEEDED", ended.Status, tree(ended))
}

func TestAnAbortReturnsTheStatusThatFollows(t *testing.T) {
	t.Parallel()
	s := newService(t, &fullManager{Manager: newManager(t, 1), refused: make(chan time.Time, 20)})
	started, err := s.Start(t.Context(), account, api.RunRequest{YAML: hello})
	require.NoError(t, err)
	aborted, err := s.Abort(t.Context(), account, started.ID, api.Order{By: "ann"})
	require.NoError(t, err)
	assert.Contains(t, []string{"CANCELLING", "ABORTED"}, aborted.Status)
	assert.Greater(t, aborted.Version, started.Version)
}

func TestACallerThatStopsWaitingLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1))
	_, err := s.Wait(t.Context(), account, "unknown")
	require.ErrorIs(t, err, pipeline.ErrNotFound)
	ended := run(t, s, hello)
	_, err = s.Wait(t.Context(), account, ended.ID)
	require.NoError(t, err)
	_, err = s.Changes(t.Context(), account, ended.ID, 0)
	require.NoError(t, err)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Changes(canceled, account, ended.ID, ended.Version)
	require.Error(t, err)
	assert.Zero(t, s.Waiters())
}

func TestRequestsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, newManager(t, 1))
	for want, req := range map[string]api.RunRequest{
		`the pipeline has no stage "biuld": its stages are build`: {YAML: hello, Stages: []string{"biuld"}},
		"branch\" is not text":   {YAML: hello, Branch: "a\x00b"},
		"branch has 300 bytes":   {YAML: hello, Branch: strings.Repeat("b", 300)},
		"labels.team\" is not":   {YAML: hello, Labels: map[string]string{"team": "\xff"}},
		"a member without a nam": {YAML: hello, Labels: map[string]string{"": "x"}},
	} {
		_, err := s.Start(t.Context(), account, req)
		require.ErrorIs(t, err, pipeline.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	_, err := s.Abort(t.Context(), account, "any", api.Order{Reason: strings.Repeat("r", 5000)})
	require.ErrorContains(t, err, "reason has 5000 bytes")
	url := serve(t, s)
	status, body := call(t, "POST", url+"/api/lint", encode(t, api.RunRequest{YAML: hello})+"{}")
	assert.Equal(t, 400, status)
	assert.Contains(t, body, "text after its JSON value")
}

func TestTimesThatWouldLoseRunsAreRefused(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]pipeline.Config{"Retention": {Retention: -time.Hour}, "Lease": {Lease: time.Millisecond}} {
		cfg.Manager, cfg.Database = &manager.Manager{}, "unused.db"
		_, err := pipeline.New(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}
