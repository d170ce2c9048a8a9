package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

func endedStage(i int) store.EndedStage {
	return store.EndedStage{
		Account: "a", ID: fmt.Sprintf("s%d", i), Pipeline: []string{"web", "api"}[i%2], Status: "SUCCESS", Delegate: "d", Labels: map[string]string{"team": "red"},
		Search: fmt.Sprintf("Stage number%d", i), Started: start, Ended: start.Add(time.Duration(i) * time.Minute), Head: []byte("head"), Detail: []byte("detail"),
	}
}

// Several processes write the same list: each stage is written and counted once, whichever process
// writes a section, and also when a manager tells of stages again.
func TestEachEndedStageIsWrittenOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		const stages = 60
		var writers sync.WaitGroup
		for w := range 3 {
			s := open(t, database)
			writers.Go(func() {
				for {
					at, known, err := s.Position(t.Context(), "a", "epoch")
					if !assert.NoError(t, err) || at == stages {
						return
					}
					sec := store.Section{Account: "a", Epoch: "epoch", First: !known, After: at, To: min(at+uint64(3+w), stages)}
					for i := at; i < sec.To; i++ {
						sec.Stages = append(sec.Stages, endedStage(int(i))) //nolint:gosec // small
					}
					if err := s.Record(t.Context(), sec, start); !errors.Is(err, store.ErrStale) && !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		writers.Wait()
		s := open(t, database)
		require.NoError(t, s.Record(t.Context(), store.Section{Account: "a", Epoch: "restored", First: true, To: 1, Lost: 2, Stages: []store.EndedStage{endedStage(0)}}, start))
		lost, err := s.Lost(t.Context(), "a")
		require.NoError(t, err)
		assert.Equal(t, uint64(2), lost)

		list := func(f store.Filter) (ids []string) {
			f.Account, f.Limit = "a", 7
			for {
				page, next, err := s.Ended(t.Context(), f)
				require.NoError(t, err)
				for _, st := range page {
					ids = append(ids, st.ID)
				}
				if next == nil {
					return ids
				}
				f.Before, f.BeforeID = next.Time, next.ID
			}
		}
		all := list(store.Filter{})
		require.Len(t, all, stages)
		for i, id := range all {
			require.Equal(t, fmt.Sprintf("s%d", stages-1-i), id)
		}
		assert.Len(t, list(store.Filter{Pipeline: "api", Text: "numb", Marks: []store.Mark{{Kind: "delegate", Value: "d"}, {Kind: "label", Name: "team", Value: "red"}}}), stages/2)
		assert.Equal(t, []string{"s33"}, list(store.Filter{Text: "number33 stage"}))
		days, err := s.Days(t.Context(), "a", store.StageOutcomes, "", start, start.Add(24*time.Hour))
		require.NoError(t, err)
		require.Len(t, days, 1)
		assert.Equal(t, map[string]int{"SUCCESS": stages}, days[0].Statuses)
		assert.InEpsilon(t, (29 * time.Minute).Seconds(), days[0].P50.Seconds(), 0.06)

		kept, computed, err := s.Sums(t.Context())
		require.NoError(t, err)
		assert.Equal(t, computed, kept)
		require.NoError(t, s.ForgetSums(t.Context()))
		again := open(t, database) // as the database of an older version
		kept, _, err = again.Sums(t.Context())
		require.NoError(t, err)
		assert.Equal(t, computed, kept)

		// The size bounds the history to the stages that ended last.
		before, err := s.Excess(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, start.Add((stages-1)*time.Minute), before)
		for n := 10; n > 0; {
			n, err = s.ExpireStages(t.Context(), before, 10)
			require.NoError(t, err)
			assert.LessOrEqual(t, n, 10)
		}
		assert.Equal(t, []string{"s59"}, list(store.Filter{}))
		assert.Equal(t, []string{"s59"}, list(store.Filter{Text: "stage"}))
		for more := true; more; {
			more, err = s.Shrink(t.Context(), 2)
			require.NoError(t, err)
		}
	})
}

// The position in the list of an account stays while no stage ends, and those in its earlier lists
// are removed. A second first section is refused.
func TestTheLastPositionStays(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "pipelines.db"))
	first := store.Section{Account: "a", Epoch: "old", First: true}
	require.NoError(t, s.Record(t.Context(), first, start))
	require.ErrorIs(t, s.Record(t.Context(), first, start), store.ErrStale)
	require.NoError(t, s.Record(t.Context(), store.Section{Account: "a", Epoch: "new", First: true, To: 7}, start.Add(time.Hour)))
	require.NoError(t, s.Record(t.Context(), store.Section{Account: "b", Epoch: "new", First: true}, start))
	require.NoError(t, s.ForgetOutcomes(t.Context(), start.Add(1000*time.Hour)))
	for _, want := range []struct {
		account, epoch string
		position       uint64
		known          bool
	}{{"a", "old", 0, false}, {"a", "new", 7, true}, {"b", "new", 0, true}} {
		position, known, err := s.Position(t.Context(), want.account, want.epoch)
		require.NoError(t, err)
		assert.Equal(t, want.position, position, want)
		assert.Equal(t, want.known, known, want)
	}
}
