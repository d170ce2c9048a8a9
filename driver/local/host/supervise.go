package host

import "sync/atomic"

// supervises is set in a program whose main calls Supervise.
var supervises atomic.Bool

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
func Supervise() { supervises.Store(true) }
