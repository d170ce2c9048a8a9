package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/delegate-io/dlite/manager/journal"
	"github.com/delegate-io/dlite/manager/journal/journaltest"
	"github.com/delegate-io/dlite/manager/journal/sqlite"
)

func opener(tb testing.TB, path string) journaltest.Opener {
	return func() (journal.Log, error) { return sqlite.Open(tb.Context(), path, sqlite.Config{}) }
}

// SPEC Q7.
func TestLog(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(tb testing.TB) journaltest.Opener {
		return opener(tb, filepath.Join(tb.TempDir(), "with space # and ?.db"))
	})
}
