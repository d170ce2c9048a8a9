package testbed

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// RequireVariable names the parts that must be there: a list with commas, or
// "all".
const RequireVariable = "DLITE_TEST_REQUIRE"

// Unavailable ends the test: skipped, or failed when the part is required.
func Unavailable(tb testing.TB, part, format string, args ...any) {
	tb.Helper()
	if Required(part) {
		tb.Fatalf(RequireVariable+" wants "+part+", but "+format, args...)
	}
	tb.Skipf("SKIPPED, THIS WAS NOT TESTED: it needs "+part+", but "+format, args...)
}

// Required reports whether tests must not be skipped for want of a part.
func Required(part string) bool {
	list := strings.FieldsFunc(os.Getenv(RequireVariable), func(r rune) bool { return r == ',' || r == ' ' })
	return slices.Contains(list, part) || slices.Contains(list, "all")
}
