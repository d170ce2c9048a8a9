package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// BenchmarkHistory writes ended runs, and reads pages of 50 of them by each filter. Their number is
// DLITE_HISTORY_RUNS.
func BenchmarkHistory(b *testing.B) {
	runs := 20000
	if n, err := strconv.Atoi(os.Getenv("DLITE_HISTORY_RUNS")); err == nil {
		runs = n
	}
	for name, database := range map[string]func(b *testing.B) string{
		"SQLite":     func(b *testing.B) string { b.Helper(); return filepath.Join(b.TempDir(), "pipelines.db") },
		"PostgreSQL": func(b *testing.B) string { b.Helper(); return testbed.Postgres(b).URL },
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b, database(b))
			began := time.Now()
			fill(b, s, runs)
			b.Logf("%d runs, %.0f written a second", runs, float64(runs)/time.Since(began).Seconds())
			for filter, f := range map[string]store.Filter{
				"none":     {},
				"pipeline": {Pipeline: "p7"},
				"status":   {Status: "FAILED"},
				"branch":   {Branch: "b3"},
				"label":    {Marks: []store.Mark{{Kind: "label", Name: "team", Value: "rare"}}},
				"text":     {Text: "needle"},
				"time":     {After: start.Add(time.Hour), Before: start.Add(2 * time.Hour)},
				"two":      {Status: "FAILED", Branch: "b3"},
			} {
				b.Run(filter, func(b *testing.B) {
					f.Account, f.Limit = "a", 50
					for b.Loop() {
						found, _, err := s.Runs(b.Context(), f)
						require.NoError(b, err)
						require.NotEmpty(b, found)
					}
				})
			}
		})
	}
}

// fill writes ended runs with three nodes each, 100 in a transaction.
func fill(b *testing.B, s *store.Store, runs int) {
	b.Helper()
	const together = 100
	for first := 0; first < runs; first += together {
		require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
			for i := first; i < min(runs, first+together); i++ {
				if err := tx.Create(endedRun(i), []store.Node{
					{Path: "pipeline", Data: []byte(`{"status":"SUCCEEDED"}`)}, {Path: "pipeline.stages.build", Data: []byte(`{}`)},
					{Path: "pipeline.stages.build.spec.execution.steps.test", Data: []byte(`{"outputs":{"VERSION":"1.2.3"}}`)},
				}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func endedRun(i int) *store.Run {
	r := newRun(fmt.Sprintf("run%08d", i))
	r.Pipeline, r.Branch, r.Status = fmt.Sprintf("p%d", i%50), fmt.Sprintf("b%d", i%1000), "SUCCEEDED"
	r.Search = r.Pipeline + "\n" + r.Branch
	if i%100 == 0 {
		r.Status = "FAILED"
	}
	if i%3000 == 3 { // few runs have the status and the branch of the filter "two"
		r.Status = "FAILED"
	}
	if i%5000 == 0 {
		r.Labels, r.Search = map[string]string{"team": "rare"}, r.Search+"\nneedle"
	}
	r.Created = start.Add(time.Duration(i) * time.Second)
	r.Ended = r.Created.Add(time.Minute)
	return r
}
