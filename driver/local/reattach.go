package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
)

// Reattach goes on with a container that an earlier process has started (SPEC
// T5): it reads the output from its beginning, which the engine keeps for as long
// as there is the container, and waits for the end. The step's time-out counts
// from the container's start. A process of the host cannot be followed: nobody
// has read its output meanwhile, and its exit code went to the process that is
// gone. It is killed, and the error is [driver.ErrLost].
func (d *Driver) Reattach(
	ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger, begun []driver.Resource,
) (*driver.Result, error) {
	tx, err := openTransaction(env)
	if err != nil {
		return nil, err
	}
	w := &output{w: out}
	r := &run{d: d, tx: tx, env: env, step: step, out: w, ledger: l}
	res, err := r.reattach(ctx, begun)
	if err != nil || !res.Detached {
		w.close()
	}
	switch {
	case errors.Is(err, driver.ErrNotBegun):
		return nil, err
	case err != nil:
		return nil, r.fail(err)
	}
	return res, nil
}

func (r *run) reattach(ctx context.Context, begun []driver.Resource) (*driver.Result, error) {
	of := func(kind string) []driver.Resource {
		return slices.DeleteFunc(slices.Clone(begun), func(res driver.Resource) bool { return res.Kind != kind })
	}
	if processes := of(kindProcess); len(processes) > 0 {
		_, err := r.d.Cleanup(ctx, processes)
		return nil, errors.Join(driver.ErrLost, err)
	}
	containers := of(kindContainer)
	if len(containers) == 0 {
		return nil, driver.ErrNotBegun
	}
	record := containers[len(containers)-1]
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
		// An engine may still be making it: what comes late goes with the
		// transaction, and never runs.
		return nil, errors.Join(driver.ErrNotBegun, explainEngine(cli, c.remove(ctx)))
	}
	info, err := c.inspect(ctx)
	if errdefs.IsNotFound(err) {
		return nil, driver.ErrLost
	}
	if err != nil {
		return nil, explainEngine(cli, err)
	}
	if r.volumes, err = findVolumes(r.tx, r.env.Volumes, r.step.ExtraVolumes); err != nil {
		return nil, err
	}
	if r.files, err = r.handover(data.Files, false); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	for range data.Said {
		_, _ = io.WriteString(r.out, "\n")
	}
	res, err := c.resume(ctx, info)
	if err == nil && res.Detached {
		r.files.close()
		return res, nil
	}
	if err == nil {
		r.files.collect(res, r.out)
		r.report(ctx, res)
	}
	r.files.remove()
	return res, err
}

// inspect asks for the container, also of an engine that has to come back.
func (c *containerRun) inspect(ctx context.Context) (info container.InspectResponse, err error) {
	err = c.outage().insist(ctx, c.cli, func(ctx context.Context) error {
		info, err = c.cli.ContainerInspect(ctx, c.name)
		return err
	})
	return info, err
}

// resume follows a container that may have been started, or have ended.
func (c *containerRun) resume(ctx context.Context, info container.InspectResponse) (*driver.Result, error) {
	ctx, stop := c.restOfTimeout(ctx, info)
	defer stop()
	if info.State != nil && info.State.Status == container.StateCreated {
		if err := c.startContainer(ctx); err != nil {
			return c.over(ctx, nil, fmt.Errorf("start container: %w", err))
		}
	}
	seen := &[2]part{{w: c.out}, {w: c.out}}
	if err := c.replay(ctx, seen); err != nil {
		return c.over(ctx, nil, err)
	}
	if c.step.Detach {
		c.announced = c.isAnnounced()
		spec := &containerSpec{config: &container.Config{}, host: &container.HostConfig{}}
		c.join(spec)
		res, err := c.followContainer(ctx, spec)
		return c.over(ctx, res, err)
	}
	waitCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := c.wait(waitCtx, container.WaitConditionNotRunning)
	defer drain(cancel, ended)
	res, err := c.await(ctx, ended)
	if err == nil {
		c.readRest(ctx, seen)
	}
	return c.over(ctx, res, err)
}

// part is one stream of the output as far as it has been passed on.
type part struct {
	w    io.Writer
	n    int64 // bytes that have been passed on
	skip int64 // bytes that come again
}

// Write implements [io.Writer].
func (p *part) Write(b []byte) (int, error) {
	again := min(p.skip, int64(len(b)))
	p.skip -= again
	p.n += int64(len(b)) - again
	_, err := p.w.Write(b[again:])
	return len(b), err
}

// readRest reads what the engine had not written when it said that the output had
// ended: it may leave out the last line of a container that ends, above all one
// without a newline.
func (c *containerRun) readRest(ctx context.Context, seen *[2]part) {
	for i := range seen {
		seen[i].skip = seen[i].n
	}
	ctx, cancel := detach(ctx, engineTimeout)
	defer cancel()
	logs, err := c.cli.ContainerLogs(ctx, c.name, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return // it keeps none, and what there was has been passed on
	}
	if err := copyStreams(&seen[0], &seen[1], logs); err != nil {
		c.d.cfg.log.Warn().Err(err).Str("container", c.name).Msg("read the end of the output of container")
	}
	_ = logs.Close()
}

// restOfTimeout bounds ctx by what is left of the step's time-out.
func (c *containerRun) restOfTimeout(ctx context.Context, info container.InspectResponse) (context.Context, context.CancelFunc) {
	if c.step.Timeout <= 0 || c.step.Detach {
		return ctx, func() {}
	}
	limit := time.Duration(c.step.Timeout) * time.Second
	end := time.Now().Add(limit)
	if info.State != nil {
		if started, err := time.Parse(time.RFC3339Nano, info.State.StartedAt); err == nil && started.Year() > 1 {
			end = started.Add(limit)
		}
	}
	return context.WithDeadlineCause(ctx, end, fmt.Errorf("its time-out of %v is over", limit))
}

// replay reads the output from its beginning; where the engine keeps none, from
// now on.
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
	c.out.printf("The delegate was restarted, and what the step printed before is lost: %v", err)
	stream, err := c.cli.ContainerAttach(ctx, c.name, container.AttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach to container: %w", err)
	}
	c.copyFrom(stream.Reader, closer(stream.Close), c.out, c.out)
	return nil
}

var _ driver.Reattacher = (*Driver)(nil)
