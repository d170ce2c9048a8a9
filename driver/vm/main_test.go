package vm_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// TestMain raises the number of parallel tests above the number of processors, unless
// -parallel is set, because the tests wait most of their time.
func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim() // does not return
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeShared()
		os.Exit(code)
	}))
}
