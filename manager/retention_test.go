package manager_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// endStages submits stages of one step and ends them.
func endStages(t *testing.T, m *manager.Manager, stages int) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(64)
	for i := range stages {
		all.Go(func() error {
			id := fmt.Sprintf("stage-%08d", i)
			_, err := m.SubmitStage(t.Context(), account, api.StageRequest{
				ID: id, Pipeline: "web", Labels: map[string]string{"branch": strings.Repeat("b", 100)},
				Steps: []api.StepRequest{{ID: "build", Name: "Build it", Data: json.RawMessage(`{"run":{"commands":["make"]}}`)}},
			})
			if err == nil {
				_, err = m.AbortStage(t.Context(), account, id)
			}
			if errors.Is(err, manager.ErrNotFound) { // others have ended meanwhile
				return nil
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
}

// The bound in bytes counts the memory of ended stages. The test is not parallel: it
// measures the heap.
func TestEndedStagesCountTheirMemory(t *testing.T) {
	const stages, bound = 6000, 16 << 20
	grown := func(maxFinished int) (heap, kept int) {
		s := start(t, func(c *manager.Config) { c.MaxFinished, c.MaxFinishedBytes = maxFinished, bound })
		before := heapInUse()
		endStages(t, s.m, stages)
		return heapInUse() - before, len(s.m.Stages(account))
	}
	events, _ := grown(1)
	heap, kept := grown(1_000_000)
	heap -= events
	t.Logf("%d ended stages take %d bytes each and count %d", kept, heap/kept, bound/kept)
	assert.Less(t, kept, stages)
	assert.Less(t, heap, bound)
	assert.Greater(t, heap, bound/3, "the bound should be near the memory")
}

// After many ended stages the database has the documented size, and the manager remembers
// those that ended last (docs/manager.md, "What is kept").
func TestTheDatabaseIsBoundedByEndedStages(t *testing.T) {
	t.Parallel()
	const stages, bound, compactAfter = 3000, 256 << 10, 128 << 10
	dir := t.TempDir()
	s := start(t, func(c *manager.Config) {
		c.Store, c.StoreKeys = openSQLite(t, dir), storeKeys
		c.MaxFinished, c.MaxFinishedBytes, c.CompactAfter = 1_000_000, bound, compactAfter
	})
	endStages(t, s.m, stages)
	kept := s.m.Stages(account)
	assert.Less(t, len(kept), bound/(8<<10))
	assert.Greater(t, len(kept), bound/(16<<10))
	assert.Eventually(t, func() bool {
		f, err := os.Stat(filepath.Join(dir, "manager.db"))
		require.NoError(t, err)
		return f.Size() < 4*bound
	}, 20*time.Second, 10*time.Millisecond, "the database is larger than four times the bound")
}

func heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // far below the maximum
}
