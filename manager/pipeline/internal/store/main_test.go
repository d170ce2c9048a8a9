package store_test

import (
	"cmp"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", cmp.Or(os.Getenv("DLITE_HISTORYTEST_RUNS"), "25")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
