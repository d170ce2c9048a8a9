package endtoend_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/local/host"
)

func TestMain(m *testing.M) {
	host.Supervise() // of a victim
	if os.Getenv(victimEnv) != "" {
		victim() // does not return
	}
	if os.Getenv(stormEnv) != "" {
		runStorm() // does not return
	}
	goleak.VerifyTestMain(m)
}

// victimEnv, if set, makes the test binary a delegate that a test kills, see
// victim_linux_test.go.
const victimEnv = "DLITE_TEST_VICTIM"
