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
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

func (r *run) reattach(ctx context.Context, record driver.Resource) (*driver.Result, error) {
	var data containerData
	if err := json.Unmarshal(record.Data, &data); err != nil {
		return nil, fmt.Errorf("%w: read the container's record: %w", driver.ErrLost, err)
	}
	cli, err := r.d.engine.ready(ctx)
	if err != nil {
		return nil, err
	}
	c := &containerRun{run: r, cli: cli, name: record.ID}
	if !data.Started {
		// The engine may still be creating the container. The cleanup of the transaction removes it,
		// and it never starts.
		return nil, errors.Join(driver.ErrNotBegun, explainEngine(cli, c.remove(ctx)))
	}
	info, err := c.inspect(ctx)
	if errdefs.IsNotFound(err) {
		return nil, driver.ErrLost
	}
	if err != nil {
		return nil, explainEngine(cli, err)
	}
	if r.Volumes, err = steps.FindVolumes(r.Tx, r.Env.Volumes, r.Step.ExtraVolumes); err != nil {
		return nil, err
	}
	if err := r.OpenFiles(data.Files); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	for range data.Lines {
		_, _ = io.WriteString(r.Out, "\n")
	}
	res, err := c.resume(ctx, info)
	if err == nil {
		r.Finish(ctx, res)
	}
	if err != nil {
		r.Files.Remove()
	}
	return res, err
}

// inspect returns the state of the container. It waits for an engine that is away.
func (c *containerRun) inspect(ctx context.Context) (info container.InspectResponse, err error) {
	err = c.outage().insist(ctx, c.cli, func(ctx context.Context) error {
		info, err = c.cli.ContainerInspect(ctx, c.name)
		return err
	})
	return info, err
}

// resume follows a container that may be created, running or ended.
func (c *containerRun) resume(ctx context.Context, info container.InspectResponse) (*driver.Result, error) {
	ctx, stop := c.restOfTimeout(ctx, info)
	defer stop()
	if info.State != nil && info.State.Status == container.StateCreated {
		if err := c.startContainer(ctx); err != nil {
			return c.end(ctx, nil, fmt.Errorf("start container: %w", err))
		}
	}
	seen := &[2]part{{w: c.Out}, {w: c.Out}}
	if err := c.replay(ctx, seen); err != nil {
		return c.end(ctx, nil, err)
	}
	if c.Step.Detach {
		c.announced = c.IsAnnounced()
		spec := &containerSpec{config: &container.Config{}, host: &container.HostConfig{}}
		c.join(spec)
		res, err := c.followContainer(ctx, spec)
		return c.end(ctx, res, err)
	}
	waitCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := c.wait(waitCtx, container.WaitConditionNotRunning)
	defer drain(cancel, ended)
	res, err := c.await(ctx, ended)
	if err == nil {
		c.readRest(ctx, seen)
	}
	return c.end(ctx, res, err)
}

// part counts the bytes of one stream of the output.
type part struct {
	w    io.Writer
	n    int64 // bytes that were passed on
	skip int64 // bytes that arrive again
}

// Write implements [io.Writer].
func (p *part) Write(b []byte) (int, error) {
	again := min(p.skip, int64(len(b)))
	p.skip -= again
	p.n += int64(len(b)) - again
	_, err := p.w.Write(b[again:])
	return len(b), err
}

// readRest reads the output that the engine had not written at the end of the stream. The engine may
// leave out the last line of a container that ends, especially a line without a newline.
func (c *containerRun) readRest(ctx context.Context, seen *[2]part) {
	for i := range seen {
		seen[i].skip = seen[i].n
	}
	ctx, cancel := detach(ctx, engineTimeout)
	defer cancel()
	logs, err := c.cli.ContainerLogs(ctx, c.name, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return // the engine keeps no output, and the stream was passed on
	}
	if err := copyStreams(&seen[0], &seen[1], logs); err != nil {
		c.Driver.Log(ctx).Warn().Err(err).Str("container", c.name).Msg("read the end of the output of container")
	}
	_ = logs.Close()
}

// restOfTimeout limits ctx to the rest of the step's time-out.
func (c *containerRun) restOfTimeout(ctx context.Context, info container.InspectResponse) (context.Context, context.CancelFunc) {
	if c.Step.Timeout <= 0 || c.Step.Detach {
		return ctx, func() {}
	}
	limit := time.Duration(c.Step.Timeout) * time.Second
	end := time.Now().Add(limit)
	if info.State != nil {
		if started, err := time.Parse(time.RFC3339Nano, info.State.StartedAt); err == nil && started.Year() > 1 {
			end = started.Add(limit)
		}
	}
	return context.WithDeadlineCause(ctx, end, fmt.Errorf("its time-out of %v is over", limit))
}

// replay reads the output from its beginning. If the engine keeps no output, it reads from now on.
func (c *containerRun) replay(ctx context.Context, seen *[2]part) error {
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	logs, err := c.cli.ContainerLogs(following, c.name, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err == nil {
		c.copyFrom(logs, closer(func() { cancel(); _ = logs.Close() }), &seen[0], &seen[1])
		return nil
	}
	cancel()
	if client.IsErrConnectionFailed(err) {
		return fmt.Errorf("%w (%w)", errEngineLost, err)
	}
	c.Out.Printf("The delegate was restarted, and the earlier output of the step is lost: %v", err)
	stream, err := c.cli.ContainerAttach(ctx, c.name, container.AttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach to container: %w", err)
	}
	c.copyFrom(stream.Reader, closer(stream.Close), c.Out, c.Out)
	return nil
}
