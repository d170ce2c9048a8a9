package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/internal/journal/journaltest"
)

// BenchmarkDo measures commands that are on the disk when Do returns.
func BenchmarkDo(b *testing.B) {
	journaltest.Benchmark(b, func(tb testing.TB) journaltest.Opener {
		return opener(tb, filepath.Join(tb.TempDir(), "log.db"))
	}, 1)
}

// BenchmarkBareSync measures the disk: it writes the same number of bytes to a file and
// syncs it each time.
func BenchmarkBareSync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	line := make([]byte, 330)
	journaltest.Measure(b, 1, func(int) error {
		if _, err := f.Write(line); err != nil {
			return err
		}
		return f.Sync()
	})
}
