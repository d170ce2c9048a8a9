package pipeline_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/local/host"
)

func TestMain(m *testing.M) {
	host.Supervise()
	if url := os.Getenv(victimManager); url != "" {
		victim(url)
	}
	goleak.VerifyTestMain(m)
}
