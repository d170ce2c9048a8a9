//go:build unix

package main

import "syscall"

// The signals of the tests, one for each test that sends any, so that tests may run in parallel.
const (
	drainSignal  = syscall.SIGUSR1
	cancelSignal = syscall.SIGUSR2
	bothSignal   = syscall.SIGWINCH
)
