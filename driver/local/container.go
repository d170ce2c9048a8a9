package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/delegate-io/dlite/driver"
)

// container runs the step in a container.
func (r *run) container(ctx context.Context) (*driver.Result, error) {
	spec, err := r.containerSpec()
	if err != nil {
		return nil, err
	}
	cli, err := r.d.engine.ready(ctx)
	if err != nil {
		return nil, err
	}
	r.mountSocket(spec, cli)
	if spec.ownNetwork {
		if err := r.d.ensureNetwork(ctx, cli, r); err != nil {
			return nil, explainEngine(cli, err)
		}
	}
	c := &containerRun{run: r, cli: cli, name: r.tx.Name + "-" + slug(r.step.ID) + "-" + randomHex(4)}
	if err := c.create(ctx, spec); err != nil {
		return nil, explainEngine(cli, err)
	}
	res, err := c.start(ctx, spec)
	err = explainEngine(cli, err)
	if err != nil || !res.Detached {
		rmErr := c.remove(ctx)
		if rmErr != nil { // it is on record
			r.d.cfg.log.Warn().Err(rmErr).Str("container", c.name).Msg("remove container after its step")
		} else {
			r.d.removed(c.name)
		}
		c.finish()
	}
	return res, err
}

// errEngineLost is why nobody knows how a step's container ended.
var errEngineLost = errors.New("the Docker engine went away while the step ran")

// outage waits for the engine on behalf of the step, and says so.
func (r *run) outage() *outage {
	limit := r.d.cfg.engineWait
	return &outage{limit: limit, notice: func() {
		r.out.printf("The Docker engine does not answer; waiting for it for up to %v", limit)
	}}
}

// containerRun is a step's container.
type containerRun struct {
	*run
	cli   client.APIClient
	name  string
	tried bool // the engine was asked to create it

	stream  *types.HijackedResponse // nil before the attach
	copied  chan struct{}           // closed at the end of the output
	copyErr error                   // valid after copied
}

// create makes the container, and pulls its image when it must.
func (c *containerRun) create(ctx context.Context, spec *containerSpec) error {
	policy, err := policyOf(c.step.Pull, c.step.Image)
	if err != nil {
		return err
	}
	switch policy {
	case pullAlways:
		err = c.pull(ctx, c.cli, false)
	case pullPreferred:
		err = c.pull(ctx, c.cli, true)
	}
	if err != nil {
		return err
	}
	// Just trying tells whether the image is there, without asking first.
	lost := c.outage()
	err = lost.insist(ctx, c.cli, func(ctx context.Context) error { return c.tryCreate(ctx, spec) })
	if policy == pullMissing && isMissingImage(err) {
		if err := c.pull(ctx, c.cli, false); err != nil {
			return err
		}
		err = lost.insist(ctx, c.cli, func(ctx context.Context) error { return c.tryCreate(ctx, spec) })
	}
	return err
}

// remove removes the container, also after ctx has ended: a step that is over
// must not go on. It waits for an engine that is away.
func (c *containerRun) remove(ctx context.Context) error {
	return c.outage().insist(context.WithoutCancel(ctx), c.cli, func(ctx context.Context) error {
		return removeContainer(ctx, c.cli, c.name)
	})
}

func (c *containerRun) tryCreate(ctx context.Context, spec *containerSpec) error {
	res := driver.Resource{Kind: kindContainer, ID: c.name, Labels: c.labels()}
	return c.d.gate.create(ctx, c.ledger, res, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Seen through even when ctx ends: an abandoned call might still make it.
		ctx, cancel := detach(ctx, engineTimeout)
		defer cancel()
		_, err := c.cli.ContainerCreate(ctx, spec.config, spec.host, spec.network, nil, c.name)
		if errdefs.IsConflict(err) && c.tried {
			return nil // by a call whose answer was lost: nobody else has the name
		}
		c.tried = true
		if err != nil {
			return fmt.Errorf("create container: %w", err)
		}
		return nil
	})
}

// start starts the container and, unless it is detached, waits for its end. The
// output is attached before the start and read to its end before anything is
// waited for, so that none of it is lost.
func (c *containerRun) start(ctx context.Context, spec *containerSpec) (*driver.Result, error) {
	for _, n := range c.step.Networks {
		if n == spec.primaryNetwork || c.isOwnNetwork(n) {
			continue
		}
		endpoint := &network.EndpointSettings{Aliases: c.aliases()}
		if err := c.cli.NetworkConnect(ctx, n, c.name, endpoint); err != nil {
			return nil, fmt.Errorf("connect to network %q: %w", n, err)
		}
	}
	stream, err := c.cli.ContainerAttach(ctx, c.name, container.AttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("attach to container: %w", err)
	}
	c.stream, c.copied = &stream, make(chan struct{})
	go func() {
		defer close(c.copied)
		_, c.copyErr = stdcopy.StdCopy(c.out, c.out, stream.Reader)
	}()

	var ended <-chan containerEnd
	if !c.step.Detach {
		waitCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended = c.wait(waitCtx)
		defer func() {
			cancel()
			for range ended {
			}
		}()
	}
	if err := c.startContainer(ctx); err != nil {
		if isAway(err) { // it may have started
			err = fmt.Errorf("%w (%w)", errEngineLost, err)
		}
		return nil, fmt.Errorf("start container: %w", err)
	}
	if c.step.Detach {
		return c.followContainer(ctx, spec)
	}
	select {
	case <-c.copied:
	case <-ctx.Done():
		c.stop(ctx)
		return nil, stopped(ctx, c.step)
	}
	if c.copyErr != nil {
		c.d.cfg.log.Warn().Err(c.copyErr).Str("container", c.name).Msg("read output of container")
	}
	select {
	case end := <-ended:
		if end.err != nil {
			return nil, fmt.Errorf("wait for container: %w", end.err)
		}
		res := c.result(ctx, end.code)
		if signal := end.code - 128; (signal == 15 || signal == 9) && !res.OOMKilled && !listens(ctx, c.cli) {
			// An engine that shuts down ends its containers as somebody else
			// might, and goes on to answer on the connections that it has.
			return nil, fmt.Errorf("%w, which ended the step with signal %d", errEngineLost, signal)
		}
		return res, nil
	case <-ctx.Done():
		c.stop(ctx)
		return nil, stopped(ctx, c.step)
	}
}

// startContainer sees the call through: a container that may have started has a
// right to its grace.
func (c *containerRun) startContainer(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := detach(ctx, engineTimeout)
	defer cancel()
	return c.cli.ContainerStart(ctx, c.name, container.StartOptions{})
}

// containerEnd is how a container ended, or why nobody knows.
type containerEnd struct {
	code int
	err  error
}

// wait reports the container's end. The channel is closed when nothing goes on
// in the background any more.
func (c *containerRun) wait(ctx context.Context) <-chan containerEnd {
	ended, lost := c.cli.ContainerWait(ctx, c.name, container.WaitConditionNextExit)
	ch := make(chan containerEnd, 1)
	go func() {
		defer close(ch)
		select {
		case end := <-ended:
			if end.Error != nil {
				ch <- containerEnd{err: errors.New(end.Error.Message)}
				return
			}
			ch <- containerEnd{code: int(end.StatusCode)}
		case err := <-lost:
			if ctx.Err() == nil && !errdefs.IsNotFound(err) {
				err = fmt.Errorf("%w (%w)", errEngineLost, err)
			}
			ch <- containerEnd{err: err}
		}
	}()
	return ch
}

// The engine may learn that memory ran out a moment after it learns of the end.
// It is given this long where that is likely, and where it is only possible.
const (
	oomLikely   = time.Second
	oomPossible = 100 * time.Millisecond
	oomLook     = 10 * time.Millisecond
)

// result asks whether memory ran out: the exit code alone does not tell, and is
// 0 when a child was killed for it. Without a limit of its own a step that
// succeeded is believed.
func (c *containerRun) result(ctx context.Context, code int) *driver.Result {
	res := &driver.Result{ExitCode: code}
	if code == 0 && c.step.MemLimit <= 0 {
		return res
	}
	if c.oomKilled(ctx, code) {
		res.OOMKilled = true
		if res.ExitCode == 0 {
			res.ExitCode = 137
		}
	}
	return res
}

func (c *containerRun) oomKilled(ctx context.Context, code int) bool {
	patience := time.Duration(0) // without a limit of its own
	switch {
	case c.step.MemLimit > 0 && code == 137:
		patience = oomLikely
	case c.step.MemLimit > 0:
		patience = oomPossible
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	look := time.NewTicker(oomLook)
	defer look.Stop()
	for begin := time.Now(); ; {
		info, err := c.cli.ContainerInspect(ctx, c.name)
		if err != nil || info.ContainerJSONBase == nil || info.State == nil {
			return false
		}
		if info.State.OOMKilled || time.Since(begin) >= patience {
			return info.State.OOMKilled
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
}

// stop ends the container, politely when there is a grace: with SIGTERM, or what
// its image asks for instead. Its removal, which follows, ends it at once.
func (c *containerRun) stop(ctx context.Context) {
	grace := c.grace()
	if grace <= 0 {
		return
	}
	seconds := int((grace + time.Second - 1) / time.Second)
	ctx, cancel := detach(ctx, grace+engineTimeout)
	defer cancel()
	err := c.cli.ContainerStop(ctx, c.name, container.StopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		c.d.cfg.log.Warn().Err(err).Str("container", c.name).Msg("stop container")
	}
}

// finish waits for the rest of the output of a container that is gone.
func (c *containerRun) finish() {
	if c.stream == nil {
		return
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-c.copied:
	case <-timer.C: // it is not gone after all
	}
	c.stream.Close()
	<-c.copied
}
