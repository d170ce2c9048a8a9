package api_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/local/host"
)

func TestMain(m *testing.M) {
	host.Supervise()
	goleak.VerifyTestMain(m)
}
