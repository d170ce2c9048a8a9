// Package bootport has the lines that the agent of a virtual machine writes to the serial port on which it receives its
// boot (docs/protocol.md, section 5).
package bootport

// The agent writes Ready when it waits for its boot, and again for each empty line that it receives. An answer after a
// restore from a snapshot proves that the machine runs, so the boot's time is right on arrival. The agent then
// receives an agent.Boot as one line of JSON. When it has applied the boot, with clock and randomness, it writes Booted.
// If that fails, it writes Failed, a space and the reason. Then it closes the port.
const (
	Ready  = "ready"
	Booted = "booted"
	Failed = "failed"
)
