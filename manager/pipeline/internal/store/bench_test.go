package store_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

// BenchmarkHistory reads pages of 50 ended runs, and of 50 ended stages without a run, by each part of a filter and by
// each pair of parts, and writes more of both. The database itself creates the runs and the stages before. The number
// of each is DLITE_HISTORY_ROWS.
func BenchmarkHistory(b *testing.B) {
	rows := 20000
	if n, err := strconv.Atoi(os.Getenv("DLITE_HISTORY_ROWS")); err == nil {
		rows = n
	}
	b.Run("SQLite", func(b *testing.B) {
		database := filepath.Join(b.TempDir(), "pipelines.db")
		benchHistory(b, open(b, database), generated{"sqlite", database, "zeroblob(%d)", rows})
	})
	b.Run("PostgreSQL", func(b *testing.B) {
		database := testbed.Postgres(b).URL
		benchHistory(b, open(b, database), generated{"pgx", database, `CAST(repeat('x', %d) AS bytea)`, rows})
	})
}

func benchHistory(b *testing.B, s *store.Store, g generated) {
	b.Helper()
	began := time.Now()
	g.create(b)
	b.Logf("%d runs and %d stages created in %s", g.rows, g.rows, time.Since(began).Round(time.Second))
	b.Run("runs", func(b *testing.B) {
		benchFilters(b, func(f store.Filter) (int, error) {
			found, _, err := s.Runs(b.Context(), f)
			return len(found), err
		})
	})
	b.Run("stages", func(b *testing.B) {
		benchFilters(b, func(f store.Filter) (int, error) {
			found, _, err := s.Ended(b.Context(), f)
			return len(found), err
		})
	})
	created := 0 // it continues if the benchmark is repeated
	b.Run("write/100runs", func(b *testing.B) {
		for b.Loop() {
			writeRuns(b, s, created, 100)
			created += 100
		}
		b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	})
	sec := store.Section{Account: "w", Epoch: "epoch", First: true}
	b.Run("write/200stages", func(b *testing.B) {
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
		b.ReportMetric(200*float64(b.N)/b.Elapsed().Seconds(), "stages/s")
	})
}

// filterPart is a part of a filter. A pair has two kinds.
type filterPart struct {
	kind, name string
	add        func(*store.Filter)
}

func benchFilters(b *testing.B, page func(store.Filter) (int, error)) {
	b.Helper()
	mark := func(kind, name, value string) func(*store.Filter) {
		return func(f *store.Filter) { f.Marks = append(f.Marks, store.Mark{Kind: kind, Name: name, Value: value}) }
	}
	parts := []filterPart{
		{"status", "status", func(f *store.Filter) { f.Status = "FAILURE" }},
		{"pipeline", "pipeline", func(f *store.Filter) { f.Pipeline = "p7" }},
		{"branch", "branch", func(f *store.Filter) { f.Branch = "main" }},
		{"branch", "rareBranch", func(f *store.Filter) { f.Branch = "b3" }},
		{"label", "label", mark("label", "team", "t3")},
		{"label", "rareLabel", mark("label", "team", "rare")},
		{"delegate", "delegate", mark("delegate", "", "d3")},
		{"time", "time", func(f *store.Filter) {
			f.After, f.Before = start.Add(historyTime/2), start.Add(historyTime/2+24*time.Hour)
		}},
		{"text", "text", func(f *store.Filter) { f.Text = "build" }},
		{"text", "rareText", func(f *store.Filter) { f.Text = "needle" }},
		{"text", "manyWords", func(f *store.Filter) { f.Text = "w12" }}, // more words begin with it than the index is asked for
	}
	benchFilter := func(parts ...filterPart) {
		var names []string
		f := store.Filter{Account: "a", Limit: 50}
		for _, p := range parts {
			names = append(names, p.name)
			p.add(&f)
		}
		name := strings.Join(names, "+")
		b.Run("filter="+name, func(b *testing.B) {
			var took []time.Duration
			found := 0
			for b.Loop() {
				began := time.Now()
				n, err := page(f)
				require.NoError(b, err)
				took, found = append(took, time.Since(began)), n
			}
			slices.Sort(took)
			b.ReportMetric(0, "ns/op") // the mean
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(found), "rows")
		})
	}
	benchFilter(filterPart{name: "none", add: func(*store.Filter) {}})
	for i, p := range parts {
		benchFilter(p)
		for _, q := range parts[i+1:] {
			if p.kind != q.kind {
				benchFilter(p, q)
			}
		}
	}
	benchFilter(parts[1], filterPart{name: "never", add: func(f *store.Filter) { f.Branch = "release" }})
}

// historyTime is the time over which the rows of the history are spread.
const historyTime = 90 * 24 * time.Hour

// generated is a history that the database creates by itself.
type generated struct {
	driver, database string
	blob             string // an expression for a number of bytes
	rows             int
}

// create writes runs and ended stages. The values of a row do not depend on each other, except that only the pipeline
// p49 has the branch release.
func (g generated) create(b *testing.B) {
	b.Helper()
	db, err := sql.Open(g.driver, g.database)
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close()) }()
	numbers := `WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ` + strconv.Itoa(g.rows-1) + `) `
	// random is a number below a bound that depends on n and looks random.
	random := func(seed, below int) string {
		factors := [...]int{1103515245, 1583458089, 1664525, 22695477, 214013, 1140671485, 134775813, 69069, 2024337845}
		return fmt.Sprintf("(n * CAST(%d AS BIGINT) %% 2147483647 / 1000 %% %d)", factors[seed], below)
	}
	pipeline := `'p' || ` + random(1, 50)
	branch := `CASE WHEN ` + random(1, 50) + ` = 49 THEN 'release' WHEN ` + random(2, 2) + ` = 0 THEN 'main' ELSE 'b' || ` + random(3, 1000) + ` END`
	status := func(failed string) string {
		return `CASE WHEN ` + random(4, 100) + ` < 9 THEN '` + failed + `' ELSE 'SUCCESS' END`
	}
	needle := random(5, 3000) + ` = 0`
	search := `' build w' || n || CASE WHEN ` + needle + ` THEN ' needle' ELSE '' END`
	at := fmt.Sprintf("%d + n * CAST(%d AS BIGINT)", start.UnixMilli(), historyTime.Milliseconds()/int64(g.rows))
	blob := func(size int) string { return fmt.Sprintf(g.blob, size) }
	statements := []string{
		`INSERT INTO runs (account, id, number, pipeline, status, branch, cause, search, created, ended, size, version, definition, state) ` + numbers +
			`SELECT 'a', 's' || n, n, ` + pipeline + `, ` + status("FAILURE") + `, ` + branch + `, 'MANUAL', ` + search + `, ` + at + `, ` + at + ` + 60000, 800, 5, ` +
			blob(600) + `, ` + blob(200) + ` FROM numbers`,
		`INSERT INTO ended (account, id, pipeline, status, branch, search, ended, size, head, detail) ` + numbers +
			`SELECT 'a', 's' || n, ` + pipeline + `, ` + status("FAILURE") + `, ` + branch + `, ` + search + `, ` + at + `, 900, ` + blob(300) + `, ` + blob(600) + ` FROM numbers`,
	}
	for _, table := range []string{"marks", "ended_marks"} {
		for _, mark := range []struct{ kind, name, value, where string }{
			{"delegate", "", `'d' || ` + random(6, 20), ""},
			{"word", "", `'build'`, ""},
			{"word", "", `'needle'`, `WHERE ` + needle},
			{"word", "", `'w' || n`, ""},
			{"label", "team", `CASE WHEN ` + random(7, 3000) + ` = 0 THEN 'rare' ELSE 't' || ` + random(8, 20) + ` END`, ""},
		} {
			statements = append(statements, `INSERT INTO `+table+` (account, kind, name, value, created, run) `+numbers+
				`SELECT 'a', '`+mark.kind+`', '`+mark.name+`', `+mark.value+`, `+at+`, 's' || n FROM numbers `+mark.where)
		}
	}
	statements = append(statements, `ANALYZE`)
	if g.driver == "pgx" {
		statements = append(statements, `VACUUM`) // the server does so by itself after some time
	}
	for _, statement := range statements {
		_, err := db.ExecContext(b.Context(), statement)
		require.NoError(b, err, statement)
	}
}

// writeRuns writes ended runs with three nodes each in one transaction.
func writeRuns(b *testing.B, s *store.Store, first, runs int) {
	b.Helper()
	require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
		for i := range runs {
			r := newRun(fmt.Sprintf("written%08d", first+i))
			r.Account, r.Pipeline, r.Branch, r.Status = "w", fmt.Sprintf("p%d", i%50), fmt.Sprintf("b%d", i), "SUCCEEDED"
			r.Search = r.Pipeline + "\n" + r.Branch
			r.Created = start.Add(time.Duration(first+i) * time.Second)
			r.Ended = r.Created.Add(time.Minute)
			if err := tx.Create(r, []store.Node{
				{Path: "pipeline", Data: []byte(`{"status":"SUCCEEDED"}`)}, {Path: "pipeline.stages.build", Data: []byte(`{}`)},
				{Path: "pipeline.stages.build.spec.execution.steps.test", Data: []byte(`{"outputs":{"VERSION":"1.2.3"}}`)},
			}); err != nil {
				return err
			}
		}
		return nil
	}))
}
