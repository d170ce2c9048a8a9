package main

import "syscall"

// Windows has fewer signals. The tests are only compiled there.
const (
	drainSignal  = syscall.SIGINT
	cancelSignal = syscall.SIGTERM
	bothSignal   = syscall.SIGHUP
)
