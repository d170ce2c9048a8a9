package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	enginevolume "github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/recorded"
)

var _ driver.Finder = (*Runner)(nil)

// Find returns the containers, volumes and networks of this driver that carry all of labels.
// Directories and processes have no labels: only their records find them. If no engine answers, Find
// returns nothing.
func (d *Runner) Find(ctx context.Context, labels map[string]string) ([]driver.Resource, error) {
	args := filters.NewArgs()
	for k, v := range labels {
		if k == "" || v == "" {
			return nil, nil
		}
		args.Add("label", k+"="+v)
	}
	if args.Len() == 0 {
		return nil, nil
	}
	cli, err := d.engine.ready(ctx)
	if client.IsErrConnectionFailed(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find by labels: %w", err)
	}
	containers, err := cli.ContainerList(ctx, container.ListOptions{All: true, Filters: args})
	if err != nil {
		return nil, fmt.Errorf("find containers by labels: %w", explainEngine(cli, err))
	}
	networks, err := cli.NetworkList(ctx, network.ListOptions{Filters: args})
	if err != nil {
		return nil, fmt.Errorf("find networks by labels: %w", explainEngine(cli, err))
	}
	volumes, err := cli.VolumeList(ctx, enginevolume.ListOptions{Filters: args})
	if err != nil {
		return nil, fmt.Errorf("find volumes by labels: %w", explainEngine(cli, err))
	}
	var found []driver.Resource
	for _, c := range containers {
		for _, name := range c.Names {
			if name = strings.TrimPrefix(name, "/"); steps.IsOurs(name) {
				found = append(found, driver.Resource{Kind: steps.KindContainer, ID: name, Labels: c.Labels})
				break
			}
		}
	}
	for _, v := range volumes.Volumes {
		if steps.IsOurs(v.Name) {
			found = append(found, driver.Resource{Kind: steps.KindVolume, ID: v.Name, Labels: v.Labels})
		}
	}
	for _, n := range networks {
		if recorded.IsName(n.Name) {
			found = append(found, driver.Resource{Kind: steps.KindNetwork, ID: n.Name, Labels: n.Labels})
		}
	}
	return found, nil
}
