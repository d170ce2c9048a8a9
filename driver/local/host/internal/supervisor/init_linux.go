package supervisor

import "os"

// Name is the only argument of a supervisor.
const Name = "dlite-supervisor"

// init runs the supervisor in a process that a driver started as one. In any other process it does nothing. The
// documentation of the package says why this is not a function that main calls.
func init() { //nolint:gochecknoinits // see the documentation of the package
	if len(os.Args) == 1 && os.Args[0] == Name {
		go supervise() // the goroutine of init is locked to its thread, which makes each switch slow
		select {}
	}
}
