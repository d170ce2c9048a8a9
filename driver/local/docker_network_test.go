//go:build unix

package local_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// Close leaves detached containers running. Their records remove them.
func TestCloseLeavesDetachedContainersToCleanup(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	step := in(engine.Image, sh("service", "sleep 600"))
	step.Detach = true
	r.run(step)
	require.NoError(t, r.d.Close())
	require.Len(t, containers(t, engine, r.env.ID), 1)

	other, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
	require.NoError(t, err)
	for range 2 {
		left, err := other.Cleanup(t.Context(), r.ledger.resources())
		require.NoError(t, err)
		require.Empty(t, left)
		require.Empty(t, engine.Leftovers(t, r.env.ID))
		requireEmpty(t, r.work)
	}
	require.NoError(t, other.Close())
	r.ledger = &ledger{}
}

// Rules T1 and T8: parallel steps share one network, transactions do not.
func TestParallelContainerStepsShareOneNetwork(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			step := in(engine.Image, sh(fmt.Sprint("step", i), "hostname -i"))
			res, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, newBuffer(), r.ledger)
			res.End()
			if assert.NoError(t, err) {
				assert.Zero(t, res.ExitCode)
			}
		})
	}
	wg.Wait()
	require.Len(t, r.ledger.ofKind("network"), 1)
	require.Len(t, networks(t, engine, r.env.ID), 1)

	// Another driver, as after a restart, finds the network.
	other, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
	require.NoError(t, err)
	res, err := other.Execute(t.Context(), r.env, &driver.Step{Step: in(engine.Image, sh("step", "true"))}, newBuffer(), r.ledger)
	res.End()
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.NoError(t, other.Close())
	require.Len(t, networks(t, engine, r.env.ID), 1)
}

// The driver reports an error while it connects a network, and removes a network with attached
// containers.
func TestContainerStepNetworks(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	extra := "dlite-test-" + filepath.Base(r.work)
	_, err := engine.Client.NetworkCreate(t.Context(), extra, network.CreateOptions{Labels: map[string]string{driver.LabelTransaction: r.env.ID}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = engine.Client.NetworkRemove(context.Background(), extra) })
	count := `ls /sys/class/net | grep -c eth`
	for _, c := range []struct {
		network  string
		networks []string
		want     string
	}{
		{"", nil, "1\n"}, {r.env.Network.ID, nil, "1\n"}, {"", []string{extra, r.env.Network.ID}, "2\n"}, {extra, nil, "1\n"}, {"none", nil, "0\n"},
	} {
		step := in(engine.Image, sh("step", count))
		step.Network, step.Networks = c.network, c.networks
		_, out := r.run(step)
		require.Equal(t, c.want, out, "%q %q", c.network, c.networks)
	}
	// Engines differ in when they report the first error; all refuse the second.
	for name, want := range map[string]string{"no-such-network": "no-such-network", "host": `connect to network "host"`} {
		step := in(engine.Image, sh("step", "echo RAN"))
		step.Networks = []string{name}
		out, err := r.fail(step)
		require.ErrorContains(t, err, want)
		require.NotContains(t, out, "RAN")
	}
	require.Empty(t, containers(t, engine, r.env.ID))

	// A foreign container is still attached when the network is removed.
	own := r.ledger.ofKind("network")[0].ID
	unlabelled, err := engine.Client.ContainerCreate(t.Context(), &container.Config{Image: engine.Image, Cmd: []string{"sleep", "600"}},
		&container.HostConfig{NetworkMode: container.NetworkMode(own)}, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = engine.Client.ContainerRemove(context.Background(), unlabelled.ID, container.RemoveOptions{Force: true})
	})
	require.NoError(t, engine.Client.ContainerStart(t.Context(), unlabelled.ID, container.StartOptions{}))
	r.cleanup()
	require.Equal(t, []string{extra}, networks(t, engine, r.env.ID))
	info, err := engine.Client.ContainerInspect(t.Context(), unlabelled.ID)
	require.NoError(t, err)
	require.True(t, info.State.Running, "a container that is not ours was touched")
	require.NoError(t, engine.Client.NetworkRemove(t.Context(), extra)) // the test would report it as a leftover
}

// Anonymous volumes are removed with their container.
func TestAnonymousVolumesAreRemovedWithTheirContainer(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	image := engine.ImageWith(t, "VOLUME /anonymous")
	step := in(image, sh("step", "echo x > /anonymous/x; sleep 600"))
	step.Detach = true
	r.run(step)
	var names []string
	for _, m := range inspect(t, engine, r).Mounts {
		if m.Destination == "/anonymous" {
			names = append(names, m.Name)
		}
	}
	require.Len(t, names, 1)
	r.cleanup()
	_, err := engine.Client.VolumeInspect(t.Context(), names[0])
	require.True(t, errdefs.IsNotFound(err), "%v", err)
}

// Rule T2: an engine that dies after it removed a container, and before it removed the container's
// volumes, leaves the volumes without an owner. The record and the search by labels still find them.
func TestVolumesOfAnImageAreOnRecord(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.env.Labels = map[string]string{driver.LabelTransaction: r.env.ID}
	r.env.Volumes = []*stage.Volume{{Temp: &stage.TempVolume{ID: "own", Name: "own"}}}
	r.init()
	step := in(engine.ImageWith(t, "VOLUME /one/ /two /own"), sh("step", "exec sleep 600"))
	step.Detach = true
	step.Volumes = []*stage.VolumeMount{{Name: "own", Path: "/own"}}
	r.run(step)
	recorded := r.ledger.ofKind("volume")
	require.Len(t, recorded, 2, "a folder that the step mounts needs none")
	for i, mounted := range []string{"/one", "/two"} {
		require.True(t, slices.ContainsFunc(inspect(t, engine, r).Mounts, func(m container.MountPoint) bool {
			return m.Destination == mounted && m.Name == recorded[i].ID
		}), mounted)
	}
	require.NoError(t, engine.Client.ContainerRemove(t.Context(), inspect(t, engine, r).ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	_, err := engine.Client.VolumeInspect(t.Context(), recorded[0].ID)
	require.NoError(t, err, "its container is gone")

	found, err := r.d.Find(t.Context(), r.env.Labels)
	require.NoError(t, err)
	require.Equal(t, []string{recorded[0].ID, recorded[1].ID}, idsOf(found, "volume"))
	left, err := r.d.Cleanup(t.Context(), recorded)
	require.NoError(t, err)
	require.Empty(t, left)
	for _, v := range recorded {
		_, err := engine.Client.VolumeInspect(t.Context(), v.ID)
		require.True(t, errdefs.IsNotFound(err), "%v", err)
	}
	// A volume with a foreign name is never removed.
	left, err = r.d.Cleanup(t.Context(), []driver.Resource{{Kind: "volume", ID: "foreign"}})
	require.ErrorContains(t, err, "does not belong to this driver")
	require.Len(t, left, 1)
}

func idsOf(rs []driver.Resource, kind string) (ids []string) {
	for _, r := range rs {
		if r.Kind == kind {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func containers(t *testing.T, engine *testbed.Engine, id string) []container.Summary {
	t.Helper()
	list, err := engine.Client.ContainerList(t.Context(), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", driver.LabelTransaction+"="+id)),
	})
	require.NoError(t, err)
	return list
}

func networks(t *testing.T, engine *testbed.Engine, id string) []string {
	t.Helper()
	list, err := engine.Client.NetworkList(t.Context(), network.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", driver.LabelTransaction+"="+id)),
	})
	require.NoError(t, err)
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	return names
}

func inspect(t *testing.T, engine *testbed.Engine, r *rig) container.InspectResponse {
	t.Helper()
	list := containers(t, engine, r.env.ID)
	require.Len(t, list, 1)
	info, err := engine.Client.ContainerInspect(t.Context(), list[0].ID)
	require.NoError(t, err)
	return info
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
