package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
)

// nameVolumes names each volume that the image declares and the step does not mount. The engine would
// create these volumes without a name. If the engine is killed while it creates or removes the
// container, it forgets which container they belong to (rule T2). For a missing image nameVolumes does
// nothing: the creation of the container fails as well.
func (c *containerRun) nameVolumes(ctx context.Context, spec *containerSpec) error {
	if c.volumesNamed {
		return nil
	}
	image, err := c.cli.ImageInspect(ctx, spec.config.Image)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspect image %s for its volumes: %w", spec.config.Image, err)
	}
	c.volumesNamed = true
	if image.Config == nil {
		return nil
	}
	taken := map[string]bool{}
	for _, m := range spec.host.Mounts {
		taken[path.Clean(m.Target)] = true
	}
	for _, target := range slices.Sorted(maps.Keys(image.Config.Volumes)) {
		if target = path.Clean(target); taken[target] {
			continue
		}
		taken[target] = true
		name := fmt.Sprintf("%s-volume-%d", c.name, len(c.volumes))
		c.volumes = append(c.volumes, name)
		spec.host.Mounts = append(spec.host.Mounts, mount.Mount{
			Type: mount.TypeVolume, Source: name, Target: target,
			VolumeOptions: &mount.VolumeOptions{Labels: c.Labels()},
		})
	}
	return nil
}

// withVolumes wraps create, so that the named volumes are on record before the container is created.
func (c *containerRun) withVolumes(ctx context.Context, create func() error) func() error {
	for _, name := range slices.Backward(c.volumes) {
		next, res := create, driver.Resource{Kind: steps.KindVolume, ID: name, Labels: c.Labels()}
		create = func() error { return c.Driver.Gate.Create(ctx, c.Ledger, res, next) }
	}
	return create
}

// removeVolumes removes the volumes of a container that is gone.
func (c *containerRun) removeVolumes(ctx context.Context) error {
	var errs []error
	for _, name := range c.volumes {
		if err := removeVolume(ctx, c.cli, name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeVolume(ctx context.Context, cli client.APIClient, name string) error {
	err := cli.VolumeRemove(ctx, name, true)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
