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
	"github.com/delegate-io/dlite/internal/recorded"
)

// container runs the step in a container.
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
	return c.over(ctx, res, err)
}

// over removes the container of a step that does not go on. That of a step that
// has ended by itself goes behind the step's back: its end is what others wait
// for, and a process that takes over from this one in the meantime finds out from
// the container how the step ended.
func (c *containerRun) over(ctx context.Context, res *driver.Result, err error) (*driver.Result, error) {
	err = explainEngine(c.cli, err)
	if err == nil && res.Detached {
		return res, nil
	}
	if err == nil {
		c.finish()
		if c.Driver.Follow(removalOf(c.name), func() {}, func() { c.discard(ctx) }) {
			return res, nil
		}
	}
	c.discard(ctx)
	c.finish()
	return res, err
}

// removalOf is what a follower that removes a container is known by.
func removalOf(container string) string { return "removal of " + container }

func (c *containerRun) discard(ctx context.Context) {
	if err := c.remove(ctx); err != nil { // it is on record
		c.Driver.Config.Log.Warn().Err(err).Str("container", c.name).Msg("remove container after its step")
		return
	}
	c.d.setRemoved(c.name, c.volumes...)
}

// errEngineLost is why nobody knows how a step's container ended.
var errEngineLost = errors.New("the Docker engine went away while the step ran")

// outage waits for the engine on behalf of the step, and says so.
func (r *run) outage() *outage {
	limit := r.d.engineWait
	return &outage{limit: limit, notice: func() {
		r.Out.Printf("The Docker engine does not answer; waiting for it for up to %v", limit)
	}}
}

// containerData is kept with a container resource, for Reattach.
type containerData struct {
	// Files is the name of the step's folder.
	Files string `json:"files,omitempty"`
	// Said is how many lines the driver had written before the container.
	Said int `json:"said,omitempty"`
	// Started says that the container may have been started.
	Started bool `json:"started,omitempty"`
}

// containerRun is a step's container.
type containerRun struct {
	*run
	cli   client.APIClient
	name  string
	tried bool // the engine was asked to create it

	volumes      []string // that the image wants, see nameVolumes
	volumesNamed bool

	announced bool // it is a service already, of an earlier process

	stream  io.Closer     // of the output; nil before the attach
	copied  chan struct{} // closed at the end of the output
	copyErr error         // valid after copied
}

// create makes the container, and pulls its image when it must.
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
	}))
}

// resource is the container's record.
func (c *containerRun) resource(started bool) (driver.Resource, error) {
	data, err := json.Marshal(containerData{Files: c.Files.Name, Said: c.Out.Lines(), Started: started})
	return driver.Resource{Kind: steps.KindContainer, ID: c.name, Labels: c.Labels(), Data: data}, err
}

// start starts the container and, unless it is detached, waits for its end. The
// output is attached before the start and read to its end before anything is
// waited for, so that none of it is lost.
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
		if isAway(err) { // it may have started
			err = fmt.Errorf("%w (%w)", errEngineLost, err)
		}
		return nil, fmt.Errorf("start container: %w", err)
	}
	if c.Step.Detach {
		return c.followContainer(ctx, spec)
	}
	return c.await(ctx, ended)
}

// await follows the container to its end.
func (c *containerRun) await(ctx context.Context, ended <-chan containerEnd) (*driver.Result, error) {
	select {
	case <-c.copied:
	case <-ctx.Done():
		c.stop(ctx)
		return nil, steps.Stopped(ctx)
	}
	if c.copyErr != nil {
		c.Driver.Config.Log.Warn().Err(c.copyErr).Str("container", c.name).Msg("read output of container")
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
		return nil, steps.Stopped(ctx)
	}
}

// copyFrom takes the container's output from a stream.
func (c *containerRun) copyFrom(r io.Reader, stream io.Closer, stdout, stderr io.Writer) {
	c.stream, c.copied = stream, make(chan struct{})
	go func() {
		defer close(c.copied)
		c.copyErr = copyStreams(stdout, stderr, r)
	}()
}

type closer func()

func (c closer) Close() error { c(); return nil }

// startContainer sees the call through: a container that may have started has a
// right to its grace.
func (c *containerRun) startContainer(ctx context.Context) error {
	res, err := c.resource(true)
	if err != nil {
		return err
	}
	res.Volatile = true // the container is on the disk; that it runs ends with the machine
	if err := c.Ledger.Record(ctx, res); err != nil {
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

// drain ends a wait and returns when it has.
func drain(cancel context.CancelFunc, ended <-chan containerEnd) {
	cancel()
	for range ended {
	}
}

// The engine may learn that memory ran out a moment after it learns of the end.
// It is given this long where that is likely, and where it is only possible.
const (
	oomLikely   = 5 * time.Second
	oomPossible = 100 * time.Millisecond
	oomLook     = 10 * time.Millisecond
)

// result asks whether memory ran out: the exit code alone does not tell, and is
// 0 when a child was killed for it. Without a limit of its own a step that
// succeeded is believed.
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
	patience := time.Duration(0) // without a limit of its own
	switch {
	case c.Step.MemLimit > 0 && code == 137:
		patience = oomLikely
	case c.Step.MemLimit > 0:
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
	grace := c.Grace()
	if grace <= 0 {
		return
	}
	seconds := int((grace + time.Second - 1) / time.Second)
	ctx, cancel := detach(ctx, grace+engineTimeout)
	defer cancel()
	err := c.cli.ContainerStop(ctx, c.name, container.StopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		c.Driver.Config.Log.Warn().Err(err).Str("container", c.name).Msg("stop container")
	}
}

// finish waits for the rest of the output of a container that has ended.
func (c *containerRun) finish() {
	if c.stream == nil {
		return
	}
	timer := time.NewTimer(steps.DrainTime)
	defer timer.Stop()
	select {
	case <-c.copied:
	case <-timer.C: // it is not gone after all
	}
	_ = c.stream.Close() // it has nothing more to say
	<-c.copied
}
