package upgrade

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(daemonJournal); file != "" {
		os.Exit(playDaemon(file))
	}
	goleak.VerifyTestMain(m)
}
