package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/recorded"
)

// networkState is the network of a transaction in this process.
type networkState struct {
	done chan struct{} // closed when the network exists or has failed
	name string        // valid after done
	err  error         // valid after done
}

// ensureNetwork creates the transaction's network if it is missing, and returns its name. Parallel
// steps create it once.
func (d *Runner) ensureNetwork(ctx context.Context, cli client.APIClient, r *run) (string, error) {
	d.mu.Lock()
	n, found := d.networks[r.Tx.Name]
	if !found {
		n = &networkState{done: make(chan struct{})}
		d.networks[r.Tx.Name] = n
	}
	d.mu.Unlock()
	if found {
		select {
		case <-n.done:
			return n.name, n.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	n.err = r.outage().insist(ctx, cli, func(ctx context.Context) (err error) {
		n.name, err = d.findOrCreateNetwork(ctx, cli, r)
		return err
	})
	if n.err != nil {
		n.err = fmt.Errorf("network: %w", n.err)
		d.forgetNetwork(r.Tx.Name)
	}
	close(n.done)
	return n.name, n.err
}

// findOrCreateNetwork returns the transaction's network. If an earlier process began the transaction,
// its call to create the network may still run. The engine would then create two networks with one
// name, which no container can use. So a later process uses another name.
func (d *Runner) findOrCreateNetwork(ctx context.Context, cli client.APIClient, r *run) (string, error) {
	name := r.Tx.Name
	if r.Tx.Maker != d.shared.ID {
		used, err := usedNetwork(ctx, cli, name)
		if err != nil || used != "" {
			return used, err
		}
		name += "-" + recorded.RandomHex(4)
	}
	res := driver.Resource{Kind: steps.KindNetwork, ID: name, Labels: r.Tx.Labels}
	return name, d.shared.Gate.Create(ctx, r.Ledger, res, func() error { return makeNetwork(ctx, cli, r, name) })
}

func makeNetwork(ctx context.Context, cli client.APIClient, r *run, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := detach(ctx, engineTimeout)
	defer cancel()
	labels := maps.Clone(r.Env.Network.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, r.Tx.Labels)
	_, err := cli.NetworkCreate(ctx, name, network.CreateOptions{Labels: labels, Options: r.Env.Network.Options})
	if errdefs.IsConflict(err) {
		return nil // an earlier call created it, and its answer was lost
	}
	if err != nil && strings.Contains(err.Error(), "non-overlapping") {
		return fmt.Errorf("%w (the engine's default-address-pools bound how many transactions can have a network at once)", err)
	}
	return err
}

// usedNetwork returns the transaction's network that has containers, otherwise the oldest one, or "".
func usedNetwork(ctx context.Context, cli client.APIClient, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	list, err := cli.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", name))})
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(n network.Summary) bool { return !strings.HasPrefix(n.Name, name) })
	slices.SortFunc(list, func(a, b network.Summary) int { return a.Created.Compare(b.Created) })
	for _, n := range list {
		info, err := cli.NetworkInspect(ctx, n.ID, network.InspectOptions{})
		if err == nil && len(info.Containers) > 0 {
			return n.Name, nil
		}
	}
	if len(list) == 0 {
		return "", nil
	}
	return list[0].Name, nil
}

func (d *Runner) forgetNetwork(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.networks, name)
}

// removeNetwork disconnects all containers from a network and removes it.
func removeNetwork(ctx context.Context, cli client.APIClient, name string) error {
	err := cli.NetworkRemove(ctx, name)
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	info, inspectErr := cli.NetworkInspect(ctx, name, network.InspectOptions{})
	if errdefs.IsNotFound(inspectErr) {
		return nil
	}
	if inspectErr != nil {
		return errors.Join(err, inspectErr)
	}
	for id := range info.Containers {
		if err := cli.NetworkDisconnect(ctx, name, id, true); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("disconnect container %s: %w", id, err)
		}
	}
	if err = cli.NetworkRemove(ctx, name); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
