package testbed

import "testing"

// Cache creates a directory with this name in the cache, see [CacheVariable]. It may be
// removed whenever no test runs.
func Cache(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := cacheFolder(name)
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}
