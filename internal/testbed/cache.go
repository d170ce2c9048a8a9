package testbed

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Cache makes a folder of this name in the cache, see [CacheVariable]. It may be
// removed whenever no test runs.
func Cache(tb testing.TB, name string) string {
	tb.Helper()
	parent := os.Getenv(CacheVariable)
	if parent == "" {
		_, file, _, ok := runtime.Caller(0)
		if !ok || !filepath.IsAbs(file) {
			tb.Fatalf("the project's folder is not known (built with -trimpath?); set %s", CacheVariable)
		}
		parent = filepath.Join(filepath.Dir(file), "..", "..", ".cache")
	}
	dir, err := filepath.Abs(filepath.Join(parent, name))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}
