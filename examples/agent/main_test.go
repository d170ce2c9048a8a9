package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asAgent, if set, makes the test binary the agent's program.
const asAgent = "DLITE_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}
