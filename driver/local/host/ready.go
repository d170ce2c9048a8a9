package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// hostService is a background step on the host that gets ready.
type hostService struct {
	p *hostProcess
}

func (s *hostService) Address() string { return steps.Loopback }

func (s *hostService) Wake() <-chan struct{} { return s.p.exited }

// ended: a service that put itself in the background goes on without its first
// process.
func (s *hostService) Ended(context.Context) error {
	select {
	case <-s.p.exited:
	default:
		return nil
	}
	code := exitCode(s.p.group.cmd.ProcessState)
	if code == 0 && s.p.group.left() {
		return nil
	}
	return steps.EndedError(code, false)
}

// run runs argv as the step is run: in its folder, with its environment and user.
func (s *hostService) Run(ctx context.Context, argv []string) (int, string, error) {
	step := s.p.group.cmd
	var path string
	for _, v := range step.Env {
		if name, value, _ := strings.Cut(v, "="); name == "PATH" {
			path = value
		}
	}
	file, err := lookPath(argv[0], step.Dir, path)
	if err != nil {
		return 0, "", err
	}
	var out steps.LimitedOutput
	attr := *step.SysProcAttr
	cmd := &exec.Cmd{
		Path: file, Args: argv, Dir: step.Dir, Env: step.Env, SysProcAttr: &attr,
		Stdout: &out, Stderr: &out, WaitDelay: steps.DrainTime,
	}
	g, err := s.p.group.join(cmd)
	if err != nil {
		return 0, "", fmt.Errorf("start the check: %w", err)
	}
	defer g.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = cmd.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		g.kill()
		<-done
		return 0, out.String(), ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return 0, out.String(), fmt.Errorf("wait for the check: %w", err)
	}
	return exitCode(cmd.ProcessState), out.String(), nil
}
