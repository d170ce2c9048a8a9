// Command supervisor is the small program of [host.Supervise]. A driver that has it starts it for each
// transaction with host steps, in place of the delegate's own program, whose start takes several times the
// processor time. It does nothing else, and only in the version of its driver:
//
//	CGO_ENABLED=0 go build -ldflags='-s -w' ./driver/local/host/supervisor
package main

import (
	"os"

	_ "github.com/delegate-io/dlite/driver/local/host/internal/supervisor" // takes over before main if a driver has started the program
)

func main() {
	_, _ = os.Stderr.WriteString("A delegate starts this program for host steps.\n")
	os.Exit(2)
}
