package testbed

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVariable names the parts that must be available: a comma-separated list, or "all".
const RequireVariable = "DLITE_TEST_REQUIRE"

// Unavailable skips the test, or fails it if the part is required.
func Unavailable(tb testing.TB, part, format string, args ...any) {
	tb.Helper()
	if Required(part) {
		tb.Fatalf(RequireVariable+" wants "+part+", but "+format, args...)
	}
	tb.Skipf("SKIPPED, THIS WAS NOT TESTED: it needs "+part+", but "+format, args...)
}

// Required reports whether tests that need a part must not be skipped.
func Required(part string) bool {
	list := strings.FieldsFunc(os.Getenv(RequireVariable), func(r rune) bool { return r == ',' || r == ' ' })
	return slices.Contains(list, part) || slices.Contains(list, "all")
}
