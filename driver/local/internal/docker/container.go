package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
)

// runContainer runs the step in a container.
func (r *run) runContainer(ctx context.Context) (*driver.Result, error) {
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
		name, err := r.d.ensureNetwork(ctx, cli, r)
		if err != nil {
			return nil, explainEngine(cli, err)
		}
		r.attach(spec, name)
	}
	c := &containerRun{run: r, cli: cli, name: r.Tx.Name + "-" + steps.Slug(r.Step.ID) + "-" + recorded.RandomHex(4)}
	if err := c.create(ctx, spec); err != nil {
		return nil, explainEngine(cli, err)
	}
	res, err := c.start(ctx, spec)
	return c.end(ctx, res, err)
}

// end removes the container of a step that does not continue. If the step has ended by itself, Release
// has a follower remove the container: a process that takes over from this one meanwhile reads the
// result from the container.
func (c *containerRun) end(ctx context.Context, res *driver.Result, err error) (*driver.Result, error) {
	err = explainEngine(c.cli, err)
	if err == nil && res.Detached {
		return res, nil
	}
	if err == nil {
		c.finish()
		res.Release = func() {
			if _, ok := c.Driver.Follow(removalOf(c.name), func(<-chan struct{}) { c.discard(ctx) }); !ok {
				c.discard(ctx)
			}
		}
		return res, nil
	}
	c.discard(ctx)
	c.finish()
	return nil, err
}

// removalOf returns the key of the follower that removes a container.
func removalOf(container string) string { return "removal of " + container }

func (c *containerRun) discard(ctx context.Context) {
	if err := c.remove(ctx); err != nil { // the cleanup removes it by its record
		c.Driver.Log(ctx).Warn().Err(err).Str("container", c.name).Msg("remove container after its step")
		return
	}
	c.d.setRemoved(c.name, c.volumes...)
}

// errEngineLost is the error of a step whose result is unknown because the engine went away.
var errEngineLost = errors.New("the Docker engine went away while the step ran")

// outage returns the wait for the engine for this step. It prints a line when the wait begins.
func (r *run) outage() *outage {
	limit := r.d.engineWait
	return &outage{limit: limit, notice: func() {
		r.Out.Printf("The Docker engine does not answer; waiting for it for up to %v", limit)
	}}
}

// containerData is the part of a container's record that Reattach needs.
type containerData struct {
	// Files is the name of the step's files ([steps.Files]).
	Files string `json:"files,omitempty"`
	// Lines is how many lines the driver printed before the output of the container.
	Lines int `json:"said,omitempty"`
	// Started is set before the container is started.
	Started bool `json:"started,omitempty"`
}

// containerRun is the container of one step.
type containerRun struct {
	*run
	cli   client.APIClient
	name  string
	tried bool // an earlier call may have created it

	volumes      []string // volumes that the image declares, see nameVolumes
	volumesNamed bool

	announced bool // an earlier process announced it as a service

	stream  io.Closer     // the output; nil before it is attached
	copied  chan struct{} // closed at the end of the output
	copyErr error         // valid after copied
}

// create creates the container, and pulls its image if necessary.
func (c *containerRun) create(ctx context.Context, spec *containerSpec) error {
	policy, err := policyOf(c.Step.Pull, c.Step.Image)
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
	// The attempt shows whether the image exists. That saves a request.
	lost := c.outage()
	err = lost.insist(ctx, c.cli, func(ctx context.Context) error { return c.tryCreate(ctx, spec) })
	if policy == pullMissing && isMissingImage(err) {
		if err := c.pull(ctx, c.cli, false); err != nil {
			return err
		}
		err = lost.insist(ctx, c.cli, func(ctx context.Context) error { return c.tryCreate(ctx, spec) })
	}
	if isMissingImage(err) { // the policy is Never, or the image was removed after the pull
		return &pullError{err}
	}
	return err
}

// remove removes the container, also after ctx has ended, because a step that has ended must not run
// on. It waits for an engine that is away.
func (c *containerRun) remove(ctx context.Context) error {
	return c.outage().insist(context.WithoutCancel(ctx), c.cli, func(ctx context.Context) error {
		if err := removeContainer(ctx, c.cli, c.name); err != nil {
			return err
		}
		return c.removeVolumes(ctx)
	})
}

func (c *containerRun) tryCreate(ctx context.Context, spec *containerSpec) error {
	if err := c.nameVolumes(ctx, spec); err != nil {
		return err
	}
	res, err := c.resource(false)
	if err != nil {
		return err
	}
	return c.Driver.Gate.Create(ctx, c.Ledger, res, c.withVolumes(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The call ignores the end of ctx: the engine may complete a call that the driver abandons.
		ctx, cancel := detach(ctx, engineTimeout)
		defer cancel()
		_, err := c.cli.ContainerCreate(ctx, spec.config, spec.host, spec.network, nil, c.name)
		if errdefs.IsConflict(err) && c.tried {
			return nil // an earlier call created it, and its answer was lost: only this process knows the name
		}
		c.tried = true
		if err != nil {
			return fmt.Errorf("create container: %w", err)
		}
		return nil
	}))
}

// resource returns the record of the container.
func (c *containerRun) resource(started bool) (driver.Resource, error) {
	data, err := json.Marshal(containerData{Files: c.Files.Name, Lines: c.Out.Lines(), Started: started})
	return driver.Resource{Kind: steps.KindContainer, ID: c.name, Labels: c.Labels(), Data: data}, err
}

// start starts the container and, unless it is detached, waits for its end. It attaches the output
// before the start and reads it to its end before it waits, so that no output is lost.
func (c *containerRun) start(ctx context.Context, spec *containerSpec) (*driver.Result, error) {
	for _, n := range c.Step.Networks {
		if n == spec.primaryNetwork || c.UsesOwnNetwork(n) {
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
	c.copyFrom(stream.Reader, closer(stream.Close), c.Out, c.Out)

	var ended <-chan containerEnd
	if !c.Step.Detach {
		waitCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended = c.wait(waitCtx, container.WaitConditionNextExit)
		defer drain(cancel, ended)
	}
	if err := c.startContainer(ctx); err != nil {
		if isAway(err) { // the container may have started
			err = fmt.Errorf("%w (%w)", errEngineLost, err)
		}
		return nil, fmt.Errorf("start container: %w", err)
	}
	if c.Step.Detach {
		return c.followContainer(ctx, spec)
	}
	return c.await(ctx, ended)
}

// await waits for the end of the container.
func (c *containerRun) await(ctx context.Context, ended <-chan containerEnd) (*driver.Result, error) {
	select {
	case <-c.copied:
	case <-ctx.Done():
		c.stop(ctx)
		return nil, steps.Stopped(ctx)
	}
	if c.copyErr != nil {
		c.Driver.Log(ctx).Warn().Err(c.copyErr).Str("container", c.name).Msg("read output of container")
	}
	select {
	case end := <-ended:
		if end.err != nil {
			return nil, fmt.Errorf("wait for container: %w", end.err)
		}
		res := c.result(ctx, end.code)
		if signal := end.code - 128; (signal == 15 || signal == 9) && !res.OOMKilled && !listens(ctx, c.cli) {
			// An engine that shuts down stops its containers with a signal, and still answers on open
			// connections.
			return nil, fmt.Errorf("%w, which ended the step with signal %d", errEngineLost, signal)
		}
		return res, nil
	case <-ctx.Done():
		c.stop(ctx)
		return nil, steps.Stopped(ctx)
	}
}

// copyFrom copies the container's output from a stream.
func (c *containerRun) copyFrom(r io.Reader, stream io.Closer, stdout, stderr io.Writer) {
	c.stream, c.copied = stream, make(chan struct{})
	go func() {
		defer close(c.copied)
		c.copyErr = copyStreams(stdout, stderr, r)
	}()
}

type closer func()

func (c closer) Close() error { c(); return nil }

// startContainer completes the call even if ctx ends: a container that may have started must get its
// grace.
func (c *containerRun) startContainer(ctx context.Context) error {
	res, err := c.resource(true)
	if err != nil {
		return err
	}
	res.Volatile = true // the container is on the disk, and a crash of the machine stops it
	if err := c.Ledger.Record(ctx, res); err != nil {
		return err
	}
	ctx, cancel := detach(ctx, engineTimeout)
	defer cancel()
	return c.cli.ContainerStart(ctx, c.name, container.StartOptions{})
}

// containerEnd is how a container ended, or why that is unknown.
type containerEnd struct {
	code int
	err  error
}

// wait reports the container's end. It closes the channel when its goroutine ends.
func (c *containerRun) wait(ctx context.Context, until container.WaitCondition) <-chan containerEnd {
	ended, lost := c.cli.ContainerWait(ctx, c.name, until)
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

// drain cancels a wait and returns when its goroutine has ended.
func drain(cancel context.CancelFunc, ended <-chan containerEnd) {
	cancel()
	for range ended {
	}
}

// The engine may note that memory ran out a moment after the end of the container. These are the times
// to wait for it: where it is likely, and where it is only possible.
const (
	oomLikely   = 5 * time.Second
	oomPossible = 100 * time.Millisecond
	oomLook     = 10 * time.Millisecond
)

// result checks whether memory ran out. The exit code does not show it: it is 0 if only a child
// process was killed. A step without a memory limit that succeeded is not checked.
func (c *containerRun) result(ctx context.Context, code int) *driver.Result {
	res := &driver.Result{ExitCode: code}
	if code == 0 && c.Step.MemLimit <= 0 {
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
	patience := time.Duration(0) // without a memory limit
	switch {
	case c.Step.MemLimit > 0 && code == 137:
		patience = oomLikely
	case c.Step.MemLimit > 0:
		patience = oomPossible
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	ticker := time.NewTicker(oomLook)
	defer ticker.Stop()
	for begin := time.Now(); ; {
		info, err := c.cli.ContainerInspect(ctx, c.name)
		if err != nil || info.ContainerJSONBase == nil || info.State == nil {
			return false
		}
		if info.State.OOMKilled || time.Since(begin) >= patience {
			return info.State.OOMKilled
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// stop ends the container if the step has a grace: with SIGTERM, or with the stop signal of its image.
// The removal that follows kills it.
func (c *containerRun) stop(ctx context.Context) {
	grace := c.Grace()
	if grace <= 0 {
		return
	}
	seconds := int((grace + time.Second - 1) / time.Second)
	ctx, cancel := detach(ctx, grace+engineTimeout)
	defer cancel()
	err := c.cli.ContainerStop(ctx, c.name, container.StopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		c.Driver.Log(ctx).Warn().Err(err).Str("container", c.name).Msg("stop container")
	}
}

// finish waits for the rest of the output of a container that has ended.
func (c *containerRun) finish() {
	if c.stream == nil {
		return
	}
	timer := time.NewTimer(process.DrainTime)
	defer timer.Stop()
	select {
	case <-c.copied:
	case <-timer.C: // the stream does not end
	}
	_ = c.stream.Close() // no output is left
	<-c.copied
}
