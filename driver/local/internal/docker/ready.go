package docker

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
)

// followContainer waits until a detached container is ready. Its output continues until Cleanup.
func (c *containerRun) followContainer(ctx context.Context, spec *containerSpec) (*driver.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	probed, ended := make(chan struct{}), make(chan struct{})
	requestStop, ok := c.Driver.Follow(steps.KindContainer+" "+c.name, func(stop <-chan struct{}) {
		defer close(ended)
		select {
		case <-c.copied:
		case <-stop:
			cancel(steps.ErrEnded)
		}
		c.finish()
		select {
		case <-probed:
		case <-stop:
			cancel(steps.ErrEnded)
			<-probed
		}
	})
	if !ok {
		return nil, steps.ErrClosed
	}
	var err error
	if !c.announced {
		err = c.becomeService(ctx, spec)
	}
	close(probed)
	if err != nil {
		c.stop(ctx)
		rmCtx, done := detach(ctx, engineTimeout)
		defer done()
		if rmErr := removeContainer(rmCtx, c.cli, c.name); rmErr != nil {
			c.Driver.Log(ctx).Warn().Err(rmErr).Str("container", c.name).Msg("remove container that was not ready")
		}
		requestStop()
		<-ended
		return nil, err
	}
	return &driver.Result{Detached: true}, nil
}

// becomeService waits until the container is ready and announces it to the following steps.
func (c *containerRun) becomeService(ctx context.Context, spec *containerSpec) error {
	info, err := c.cli.ContainerInspect(ctx, c.name)
	if err != nil {
		return fmt.Errorf("inspect container: %w", err)
	}
	s := steps.Service{Address: c.addressFromHere(info, spec)}
	if spec.ownNetwork {
		s.Alias = steps.Slug(c.Step.ID)
	}
	if err := c.AwaitReady(ctx, &containerService{containerRun: c, at: s.Address}); err != nil {
		return err
	}
	// With an engine in a VM, only published ports are reachable.
	if s.Address == "" && len(c.Step.PortBindings) > 0 && isLocal(c.cli) {
		s.Address = steps.Loopback
	}
	return c.Announce(s)
}

// addressFromHere returns the address where this process reaches the container's ports. On Linux it is
// the container's address in the bridge network. On other systems the engine is in a VM, and the
// address is "".
func (c *containerRun) addressFromHere(info container.InspectResponse, spec *containerSpec) string {
	if runtime.GOOS != "linux" || !isLocal(c.cli) {
		return ""
	}
	if info.HostConfig != nil && info.HostConfig.NetworkMode.IsHost() {
		return steps.Loopback
	}
	if info.NetworkSettings == nil {
		return ""
	}
	if n := info.NetworkSettings.Networks[spec.primaryNetwork]; n != nil && n.IPAddress != "" {
		return n.IPAddress
	}
	for _, n := range info.NetworkSettings.Networks {
		if n != nil && n.IPAddress != "" {
			return n.IPAddress
		}
	}
	return ""
}

// isLocal reports whether the engine is on this machine or in a VM on it.
func isLocal(cli client.APIClient) bool {
	u, err := url.Parse(cli.DaemonHost())
	return err == nil && (u.Scheme == "unix" || u.Scheme == "npipe")
}

// containerService is a background container that is not ready yet. It implements [steps.Probed].
type containerService struct {
	*containerRun
	at string
}

func (s *containerService) Address() string { return s.at }

func (s *containerService) Wake() <-chan struct{} { return s.copied }

func (s *containerService) Ended(ctx context.Context) error {
	info, err := s.cli.ContainerInspect(ctx, s.name)
	switch {
	case errdefs.IsNotFound(err):
		return steps.ErrEnded
	case err != nil || info.ContainerJSONBase == nil || info.State == nil:
		return nil // the next attempt finds out
	case info.State.Running:
		return nil
	}
	return steps.EndedError(info.State.ExitCode, info.State.OOMKilled)
}

// Run runs argv in the container. If ctx ends first, the command runs until the container is removed.
func (s *containerService) Run(ctx context.Context, argv []string) (int, string, error) {
	created, err := s.cli.ContainerExecCreate(ctx, s.name, container.ExecOptions{
		Cmd: argv, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, "", fmt.Errorf("start the check: %w", err)
	}
	stream, err := s.cli.ContainerExecAttach(ctx, created.ID, container.ExecAttachOptions{})
	if err != nil {
		return 0, "", fmt.Errorf("start the check: %w", err)
	}
	var out process.LimitedOutput
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		err = copyStreams(&out, &out, stream.Reader)
	}()
	select {
	case <-copied:
		stream.Close()
	case <-ctx.Done():
		stream.Close()
		<-copied
		return 0, out.String(), ctx.Err()
	}
	if err != nil {
		return 0, out.String(), fmt.Errorf("read the check's output: %w", err)
	}
	code, err := s.execEnd(ctx, created.ID)
	return code, out.String(), err
}

// execEnd waits for the exit code of a command whose output has ended.
func (s *containerService) execEnd(ctx context.Context, id string) (int, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, steps.ReadyInterval) {
		info, err := s.cli.ContainerExecInspect(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("wait for the check: %w", err)
		}
		if !info.Running {
			return info.ExitCode, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
