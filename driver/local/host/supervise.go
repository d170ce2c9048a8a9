package host

import "sync/atomic"

// supervised is set in a program whose main calls Supervise: the small program, which may be empty.
var supervised atomic.Pointer[[]byte]

// Supervise lets the drivers of this program run their steps in supervisor processes, which separate
// the steps of transactions from each other and from this process. Call it first in main:
//
//	func main() {
//		host.Supervise()
//		...
//	}
//
// A supervisor is this program, started again with the name dlite-supervisor and no arguments. It never
// gets to main: it begins before most packages are initialized, because that is much cheaper. An init
// function that writes, or starts a process, may run in it. Without the call, drivers start steps
// themselves, without separation, and [New] logs that. Outside Linux, Supervise does nothing.
//
// A small program saves a part of the processor time of each transaction: the content of the executable of
// package driver/local/host/supervisor, from the same version of this module and for this platform. The
// drivers start it from memory. Where the machine does not allow that, and if it is empty, they start this
// program.
func Supervise(small ...[]byte) {
	var program []byte
	if len(small) > 0 {
		program = small[0]
	}
	supervised.Store(&program)
}
