package host

import (
	"context"

	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// hostService is a background step on the host that is not ready yet. It implements [steps.Probed].
type hostService struct {
	p *process.Piped
}

func (s *hostService) Address() string { return steps.Loopback }

func (s *hostService) Wake() <-chan struct{} { return s.p.Group.Exited() }

// Ended implements [steps.Probed]. A service that put itself in the background runs without its first
// process.
func (s *hostService) Ended(context.Context) error {
	select {
	case <-s.p.Group.Exited():
	default:
		return nil
	}
	code := process.Code(s.p.Group.State())
	if code == 0 && s.p.Group.Remains() {
		return nil
	}
	return steps.EndedError(code, false)
}

// Run runs argv in the directory of the step, with its environment and user.
func (s *hostService) Run(ctx context.Context, argv []string) (int, string, error) {
	return s.p.Check(ctx, argv)
}
