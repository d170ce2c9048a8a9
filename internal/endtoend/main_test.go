package endtoend_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim() // does not return
	}
	if os.Getenv(stormEnv) != "" {
		runStorm() // does not return
	}
	goleak.VerifyTestMain(m)
}

// victimEnv, when set, makes the test's program a delegate that is there to be
// killed, see victim_linux_test.go.
const victimEnv = "DLITE_TEST_VICTIM"
