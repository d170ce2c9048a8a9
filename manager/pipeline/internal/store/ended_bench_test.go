package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// BenchmarkEndedStages reads pages of 50 ended stages by each filter, and writes sections of 200.
// The database itself creates the stages before. Their number is DLITE_HISTORY_STAGES.
func BenchmarkEndedStages(b *testing.B) {
	stages := 20000
	if n, err := strconv.Atoi(os.Getenv("DLITE_HISTORY_STAGES")); err == nil {
		stages = n
	}
	b.Run("SQLite", func(b *testing.B) {
		database := filepath.Join(b.TempDir(), "pipelines.db")
		benchEnded(b, open(b, database), "sqlite", database, "x'00'", stages)
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		database := testbed.Postgres(b).URL
		benchEnded(b, open(b, database), "pgx", database, `'\x00'::bytea`, stages)
	})
}

func benchEnded(b *testing.B, s *store.Store, driver, database, blob string, stages int) {
	b.Helper()
	began := time.Now()
	generateEnded(b, driver, database, blob, stages)
	b.Logf("%d stages created in %s", stages, time.Since(began).Round(time.Second))
	for filter, f := range map[string]store.Filter{
		"none":     {},
		"pipeline": {Pipeline: "p7"},
		"status":   {Status: "FAILURE"},
		"branch":   {Branch: "b3"},
		"delegate": {Marks: []store.Mark{{Kind: "delegate", Value: "d3"}}},
		"label":    {Marks: []store.Mark{{Kind: "label", Name: "team", Value: "rare"}}},
		"text":     {Text: "needle"},
		"time":     {After: start.Add(time.Hour), Before: start.Add(2 * time.Hour)},
		"two":      {Status: "FAILURE", Branch: "b3"},
	} {
		b.Run(filter, func(b *testing.B) {
			f.Account, f.Limit = "a", 50
			for b.Loop() {
				found, _, err := s.Ended(b.Context(), f)
				require.NoError(b, err)
				require.NotEmpty(b, found)
			}
		})
	}
	sec := store.Section{Account: "w", Epoch: "epoch", First: true} // it continues if the benchmark is repeated
	b.Run("write200", func(b *testing.B) {
		for b.Loop() {
			sec.To, sec.Stages = sec.After+200, nil
			for i := sec.After; i < sec.To; i++ {
				st := endedStage(int(i)) //nolint:gosec // small
				st.Account = sec.Account
				sec.Stages = append(sec.Stages, st)
			}
			require.NoError(b, s.Record(b.Context(), sec, start))
			sec.First, sec.After = false, sec.To
		}
	})
}

// generateEnded lets the database create ended stages, one in each second. One in 3,000 has the
// label team=rare and the word needle.
func generateEnded(b *testing.B, driver, database, blob string, stages int) {
	b.Helper()
	db, err := sql.Open(driver, database)
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close()) }()
	numbers := `WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ` + strconv.Itoa(stages-1) + `) `
	at := strconv.FormatInt(start.UnixMilli(), 10) + ` + n * CAST(1000 AS BIGINT)`
	mark := func(kind, name, value, where string) string {
		return `INSERT INTO ended_marks (account, kind, name, value, created, run) ` + numbers + `SELECT 'a', '` + kind + `', '` + name + `', ` + value + `, ` + at + `, 's' || n FROM numbers ` + where
	}
	for _, statement := range []string{
		`INSERT INTO ended (account, id, pipeline, status, branch, search, ended, size, head, detail) ` + numbers +
			`SELECT 'a', 's' || n, 'p' || (n % 50), CASE WHEN n % 100 = 3 THEN 'FAILURE' ELSE 'SUCCESS' END, 'b' || (n % 1000),
				CASE WHEN n % 3000 = 0 THEN ' build needle' ELSE ' build' END, ` + at + `, 500, BLOB, BLOB FROM numbers`,
		mark("delegate", "", "'d' || (n % 20)", ""),
		mark("word", "", "'build'", ""),
		mark("word", "", "'needle'", "WHERE n % 3000 = 0"),
		mark("label", "team", "'rare'", "WHERE n % 3000 = 0"),
		`ANALYZE`,
	} {
		_, err := db.ExecContext(b.Context(), strings.ReplaceAll(statement, "BLOB", blob))
		require.NoError(b, err, statement)
	}
}
