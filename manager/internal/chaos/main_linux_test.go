package chaos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary also runs as a manager, as a pipeline service or as a process with
// delegates. These environment variables contain the configuration of such a process, as
// JSON.
const (
	managerEnv  = "DLITE_CHAOS_MANAGER"
	serviceEnv  = "DLITE_CHAOS_SERVICE"
	delegateEnv = "DLITE_CHAOS_DELEGATE"
)

const (
	account = "acc"
	secret  = "00000000000000000000000000000001"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(managerEnv); text != "" {
		runRole(text, runManager)
	}
	if text := os.Getenv(serviceEnv); text != "" {
		runRole(text, runService)
	}
	if text := os.Getenv(delegateEnv); text != "" {
		runRole(text, runDelegates)
	}
	// The proxy leaks goroutines if a connection ends while a toxic changes.
	const proxy = "github.com/Shopify/toxiproxy/v2"
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(proxy+"/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction(proxy+".(*ToxicLink).read"), goleak.IgnoreAnyFunction(proxy+".(*ToxicLink).write"))
}

// runRole runs the process that the configuration describes. It does not return.
func runRole[O any](text string, run func(O) error) {
	var o O
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ended:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
