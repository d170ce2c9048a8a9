package host

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// delegateDir names the directory of a process that plays a delegate, and smallProgram the small program that it
// has.
const (
	delegateDir  = "DLITE_TEST_DELEGATE_DIR"
	smallProgram = "DLITE_TEST_SMALL_PROGRAM"
)

func TestMain(m *testing.M) {
	small, _ := os.ReadFile(os.Getenv(smallProgram)) // empty without it
	Supervise(small)
	if dir := os.Getenv(delegateDir); dir != "" {
		if err := playDelegate(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
