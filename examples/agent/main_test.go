package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asAgent, when set, makes the test's program the agent's.
const asAgent = "DLITE_TEST_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}
