package host

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// hostService is a background step on the host that is not ready yet. It implements [steps.Probed].
type hostService struct {
	p *hostProcess
}

func (s *hostService) Address() string { return steps.Loopback }

func (s *hostService) Wake() <-chan struct{} { return s.p.group.Exited() }

// Ended implements [steps.Probed]. A service that put itself in the background runs without its first
// process.
func (s *hostService) Ended(context.Context) error {
	select {
	case <-s.p.group.Exited():
	default:
		return nil
	}
	code := process.Code(s.p.group.State())
	if code == 0 && s.p.group.Remains() {
		return nil
	}
	return steps.EndedError(code, false)
}

// Run runs argv in the directory of the step, with its environment and user.
func (s *hostService) Run(ctx context.Context, argv []string) (int, string, error) {
	dir, env := s.p.group.Dir(), s.p.group.Env()
	file, err := lookPath(argv[0], dir, pathOf(env))
	if err != nil {
		return 0, "", err
	}
	var out steps.LimitedOutput
	g, err := s.p.group.Join(ctx, &exec.Cmd{
		Path: file, Args: argv, Dir: dir, Env: env, Stdout: &out, Stderr: &out, WaitDelay: steps.DrainTime,
	})
	if err != nil {
		return 0, "", fmt.Errorf("start the check: %w", err)
	}
	select {
	case <-g.Exited():
		g.Release()
	case <-ctx.Done():
		g.End()
		return 0, out.String(), ctx.Err()
	}
	return process.Code(g.State()), out.String(), nil
}
