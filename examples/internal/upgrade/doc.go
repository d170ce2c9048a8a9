// Package upgrade replaces a bundled program by a signed release of it, while the program runs.
//
// [Fetch] takes a release from its address, verifies it, and stages it beside the program. A process of the program
// then replaces itself in these phases, which the journal beside the program holds:
//
//	staged     the new program is verified and lies beside the program
//	trial      the old program has started the new one with its own arguments, and waits until it registers
//	swap       the new one has registered; its file takes the place of the program
//	probation  the new program runs from that place, and must register once more
//	rollback   it did not: the previous file takes the place again
//	done, failed
//
// The program file is replaced only after the new program has registered on this machine with these settings. So at
// every instant the place of the program holds one whole file that works, and a kill at any instant leaves a state that
// the next start continues. [Begin] does that. It must be called before the program does anything else.
//
// Start reading at begin_unix.go.
package upgrade
