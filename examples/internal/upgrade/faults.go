package upgrade

import "os"

// faults is the name of the environment variable with the step at which the process kills itself. Only tests set it,
// with -ldflags="-X github.com/delegate-io/dlite/examples/internal/upgrade.faults=NAME". It is empty in releases.
var faults = ""

// step marks an instant at which a process may be killed, for tests.
func step(name string) {
	if faults != "" && os.Getenv(faults) == name {
		die()
	}
}
