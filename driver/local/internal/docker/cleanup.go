package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/recorded"
)

// parallelRemovals limits how many containers or volumes are removed at once.
const parallelRemovals = 8

// cleanup removes the containers, volumes and networks of one call of Cleanup.
type cleanup struct {
	d      *Runner
	outage outage
}

// Removers implements [steps.Cleaner].
func (c *cleanup) Removers() []steps.Remover {
	return []steps.Remover{
		{Kind: steps.KindContainer, Parallel: parallelRemovals, Remove: c.removeContainer},
		{Kind: steps.KindVolume, Parallel: parallelRemovals, Remove: c.removeVolume},
		{Kind: steps.KindNetwork, Remove: c.removeNetwork},
	}
}

// Terminate implements [steps.Cleaner] (rule T7).
func (c *cleanup) Terminate(ctx context.Context, byKind map[string][]driver.Resource) {
	grace := steps.HalfTime(ctx, c.d.shared.Config.Grace)
	if grace <= 0 {
		return
	}
	var wg sync.WaitGroup
	for _, r := range byKind[steps.KindContainer] {
		wg.Go(func() { c.stopContainer(ctx, r, grace) })
	}
	wg.Wait()
}

// stopContainer stops a container that may run. It does not wait for an engine that is away: the
// removal does.
func (c *cleanup) stopContainer(ctx context.Context, r driver.Resource, grace time.Duration) {
	if !steps.IsOurs(r.ID) || c.d.takeRemoved(r.ID) {
		return
	}
	cli, err := c.d.engine.client()
	if err != nil {
		return
	}
	seconds := int((grace + time.Second - 1) / time.Second)
	ctx, cancel := context.WithTimeout(ctx, grace+engineTimeout)
	defer cancel()
	err = cli.ContainerStop(ctx, r.ID, container.StopOptions{Timeout: &seconds})
	if err != nil && !errdefs.IsNotFound(err) {
		c.d.shared.Log(ctx).Warn().Err(err).Str("container", r.ID).Msg("stop container")
	}
}

var errForeignName = errors.New("the name does not belong to this driver")

func (c *cleanup) removeContainer(ctx context.Context, r driver.Resource) error {
	if !steps.IsOurs(r.ID) {
		return errForeignName
	}
	if err := c.d.shared.Unfollow(ctx, removalOf(r.ID)); err != nil {
		return err
	}
	if c.d.takeRemoved(r.ID) {
		return nil // it was removed at the end of its step, and has no follower
	}
	err := c.callEngine(ctx, func(ctx context.Context, cli client.APIClient) error { return removeContainer(ctx, cli, r.ID) })
	if err != nil {
		return err
	}
	return c.d.shared.Unfollow(ctx, steps.KindContainer+" "+r.ID)
}

// removeVolume removes a volume after the container that used it.
func (c *cleanup) removeVolume(ctx context.Context, r driver.Resource) error {
	if !steps.IsOurs(r.ID) {
		return errForeignName
	}
	if c.d.takeRemoved(r.ID) {
		return nil
	}
	return c.callEngine(ctx, func(ctx context.Context, cli client.APIClient) error { return removeVolume(ctx, cli, r.ID) })
}

func (c *cleanup) removeNetwork(ctx context.Context, r driver.Resource) error {
	if !steps.IsOurs(r.ID) {
		return errForeignName
	}
	err := c.callEngine(ctx, func(ctx context.Context, cli client.APIClient) error { return removeNetwork(ctx, cli, r.ID) })
	if err != nil {
		return err
	}
	c.d.forgetNetwork(r.ID[:recorded.NameLength])
	return nil
}

// callEngine makes a call to the engine, and repeats it while the engine is away.
func (c *cleanup) callEngine(ctx context.Context, call func(context.Context, client.APIClient) error) error {
	cli, err := c.d.engine.client()
	if err != nil {
		return err
	}
	return explainEngine(cli, c.outage.insist(ctx, cli, func(ctx context.Context) error { return call(ctx, cli) }))
}
