package supervise

import (
	"time"

	"github.com/delegate-io/dlite/internal/process"
)

// Process is an [Instance] that is a process group whose output is read.
type Process struct {
	*process.Piped
	// Out is where the output goes. It is flushed at the end.
	Out *Lines
}

// Exited is closed when the first process has ended.
func (p Process) Exited() <-chan struct{} { return p.Group.Exited() }

// Stop ends the process group and reads the rest of its output.
func (p Process) Stop(grace time.Duration) string {
	defer p.Out.Flush()
	select {
	case <-p.Exited():
		return p.Finish().String()
	default:
		return p.Piped.Stop(process.Patience{Grace: grace}).String()
	}
}
