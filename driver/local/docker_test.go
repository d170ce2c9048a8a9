//go:build unix

package local_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

func TestContainerStepHasItsUserDirectoryNetworkAndMemory(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.env.Envs = map[string]string{"SHARED": "stage", "OWN": "stage"}
	r.init()
	step := in(engine.Image, sh("step", `id -u; id -g; pwd; echo $SHARED $OWN $DLITE_WORKSPACE; cat /etc/resolv.conf | grep search; grep other.test /etc/hosts; df -k /dev/shm | tail -1 | awk '{print $2}'; echo "$0"`))
	step.Run.Command = append(step.Run.Command, "argument")
	step.User, step.WorkingDir = "1000:1000", "sub/folder"
	step.Environment = map[string]string{"OWN": "step"}
	step.DNSSearch, step.ExtraHosts, step.ShmSize = []string{"example.test"}, []string{"other.test:192.0.2.7"}, 8<<20
	_, out := r.run(step)
	lines := strings.Split(out, "\n")
	require.Len(t, lines, 9, out)
	require.Equal(t, []string{"1000", "1000", "/workspace/sub/folder", "stage step /workspace", "search example.test"}, lines[:5])
	require.Equal(t, []string{"192.0.2.7", "other.test"}, strings.Fields(lines[5]))
	require.Equal(t, "8192", lines[6])
	require.Equal(t, "argument", lines[7])
}

// Rule D3: the engine's data about the container matches the step.
func TestContainerIsConfiguredAsTheStepRequires(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.env.Volumes = []*stage.Volume{
		{Host: &stage.HostVolume{ID: "null", Path: "/dev/null"}}, {Host: &stage.HostVolume{ID: "etc", Path: "/etc", ReadOnly: true}},
	}
	r.env.Labels = map[string]string{driver.LabelDelegate: "d1", driver.LabelTransaction: "overridden"}
	r.env.Network.Labels = map[string]string{"net": "label"}
	r.init()
	port := freePort(t)
	step := in(engine.Image, sh("Step One!", "sleep 600"))
	step.Detach = true
	step.CPUPeriod, step.CPUQuota, step.CPUShares, step.CPUSet = 100000, 50000, 512, []string{"0"}
	step.MemLimit, step.MemSwapLimit = 64<<20, 64<<20
	step.DNS = []string{"192.0.2.53"}
	step.Ulimits = []*stage.Ulimit{{Name: "nofile", Soft: 100, Hard: 200}, {Name: "core", Soft: 0}}
	step.Devices = []*stage.DeviceMount{{Name: "null", DevicePath: "/dev/xnull"}}
	step.PortBindings = map[string]string{"127.0.0.1:" + port: "80"}
	step.NetworkAliases = []string{"web"}
	step.Labels = map[string]string{"mine": "yes", driver.LabelDelegate: "forged", driver.LabelStep: "forged"}
	step.Volumes = []*stage.VolumeMount{{Name: "etc", Path: "/host-etc"}}
	step.MountDockerSocket = true
	step.Run.Command[0] = "ulimit -n; ulimit -c; exec sleep 600"
	out := newBuffer()
	_, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger)
	require.NoError(t, err)
	out.waitFor(t, "100\n0\n")

	c := inspect(t, engine, r)
	require.Equal(t, int64(100000), c.HostConfig.CPUPeriod)
	require.Equal(t, int64(50000), c.HostConfig.CPUQuota)
	require.Equal(t, int64(512), c.HostConfig.CPUShares)
	require.Equal(t, "0", c.HostConfig.CpusetCpus)
	require.Equal(t, int64(64<<20), c.HostConfig.Memory)
	require.Equal(t, int64(64<<20), c.HostConfig.MemorySwap)
	require.Equal(t, []string{"192.0.2.53"}, c.HostConfig.DNS)
	require.Equal(t, []container.DeviceMapping{{PathOnHost: "/dev/null", PathInContainer: "/dev/xnull", CgroupPermissions: "rwm"}}, c.HostConfig.Devices)
	require.Equal(t, port, c.HostConfig.PortBindings["80/tcp"][0].HostPort)
	require.Equal(t, "127.0.0.1", c.HostConfig.PortBindings["80/tcp"][0].HostIP)
	require.Equal(t, []*container.Ulimit{{Name: "nofile", Soft: 100, Hard: 200}, {Name: "core"}}, c.HostConfig.Ulimits)
	require.False(t, c.HostConfig.Privileged)
	require.Equal(t, "yes", c.Config.Labels["mine"])
	require.Equal(t, "d1", c.Config.Labels[driver.LabelDelegate])
	require.Equal(t, "Step One!", c.Config.Labels[driver.LabelStep])
	require.Equal(t, r.env.ID, c.Config.Labels[driver.LabelTransaction])
	require.Len(t, c.NetworkSettings.Networks, 1)
	for name, n := range c.NetworkSettings.Networks {
		require.Subset(t, n.Aliases, []string{"web", "step-one"})
		info, err := engine.Client.NetworkInspect(t.Context(), name, network.InspectOptions{})
		require.NoError(t, err)
		require.Equal(t, "label", info.Labels["net"])
		require.Equal(t, r.env.ID, info.Labels[driver.LabelTransaction])
	}
	mounts := map[string]container.MountPoint{}
	for _, m := range c.Mounts {
		mounts[m.Destination] = m
	}
	require.True(t, mounts["/workspace"].RW)
	require.False(t, mounts["/host-etc"].RW, "a read-only mount is read-only")
	require.Contains(t, mounts, "/var/run/docker.sock")
}

// A privileged container does not start everywhere. The request for it is visible everywhere.
func TestContainerIsPrivilegedIfTheStepIs(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	var privileged bool
	step := in(engine.Image, sh("step", "sleep 600"))
	step.Privileged, step.Detach = true, true
	out := newBuffer()
	ctx, cancel := context.WithCancel(t.Context())
	events, errs := engine.Client.Events(ctx, eventsOf(r.env.ID))
	inspected := make(chan struct{})
	go func() {
		defer close(inspected)
		select {
		case e := <-events:
			if info, err := engine.Client.ContainerInspect(ctx, e.Actor.ID); err == nil {
				privileged = info.HostConfig.Privileged
			}
		case err := <-errs:
			t.Errorf("watch the engine: %v", err)
		}
	}()
	// If the container does not start, the driver reports that and removes it.
	if _, err := r.d.Execute(t.Context(), r.env, &driver.Step{Step: step}, out, r.ledger); err != nil {
		require.ErrorContains(t, err, "start container")
		require.Empty(t, containers(t, engine, r.env.ID))
	}
	receive(t, inspected)
	cancel()
	require.True(t, privileged)
}

// Rule D2: host steps and container steps see the same workspace and volumes.
func TestHostAndContainerStepsShareTheirFiles(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	ro := t.TempDir()
	r.env.Volumes = []*stage.Volume{
		{Temp: &stage.TempVolume{ID: "t", Name: "data"}}, {Temp: &stage.TempVolume{ID: "m", Medium: "memory"}},
		{Host: &stage.HostVolume{ID: "ro", Path: ro, ReadOnly: true}},
	}
	r.env.Files = []*stage.File{{Path: "given", Data: "file"}}
	r.init()
	volumes := []*stage.VolumeMount{{Name: "data", Path: "/data"}, {Name: "m", Path: "/m"}, {Name: "ro", Path: "/ro"}}
	step := in(engine.Image, sh("one", `cat given; echo c > c; echo d > /data/d; echo m > $DLITE_VOLUME_M/m; touch /ro/x 2>/dev/null && echo WRITABLE; cat /etc/tool.conf`))
	step.User = "1000"
	step.Volumes = volumes
	step.Files = []*stage.File{{Path: "/etc/tool.conf", Data: "+conf"}}
	_, out := r.run(step)
	require.Equal(t, "file+conf", out)
	step = sh("two", `cat c $DLITE_VOLUME_DATA/d $DLITE_VOLUME_M/m; echo h > h`)
	step.Volumes = volumes
	_, out = r.run(step)
	require.Equal(t, "c\nd\nm\n", out)
	_, out = r.run(in(engine.Image, sh("three", `cat h`)))
	require.Equal(t, "h\n", out)

	step = in(engine.Image, sh("bad", "true"))
	step.Volumes = []*stage.VolumeMount{{Name: "unknown", Path: "/x"}}
	_, err := r.fail(step)
	require.ErrorContains(t, err, `volume "unknown"`)
	step.Volumes = []*stage.VolumeMount{{Name: "data", Path: "x"}}
	_, err = r.fail(step)
	require.ErrorContains(t, err, "not absolute")
	step.Volumes, step.Devices = nil, []*stage.DeviceMount{{Name: "unknown"}}
	_, err = r.fail(step)
	require.ErrorContains(t, err, `device "unknown"`)
}

// Rule S5: a file with a secret, at an absolute path of a container, lies in memory.
func TestAFileWithASecretIsMountedFromMemory(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.env.Mask = func(text string) string { return strings.ReplaceAll(text, "not-a-real-secret", "******") }
	r.init()
	step := in(engine.Image, sh("one", `grep -c key /etc/tool.conf; awk '$2 == "/etc/tool.conf" {print $3}' /proc/mounts`))
	step.Files = []*stage.File{{Path: "/etc/tool.conf", Data: "key=not-a-real-secret\n"}}
	_, out := r.run(step)
	require.Equal(t, "1\ntmpfs\n", out)
}

// Rule D5.
func TestContainerStepHandsOnOutputs(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	step := in(engine.Image, sh("step", `echo A=1 >> $DRONE_OUTPUT; echo S=s >> $HARNESS_OUTPUT_SECRET_FILE; echo E=e >> $DRONE_ENV
		echo x > $PLUGIN_ARTIFACT_FILE; touch $HARNESS_SCRATCH_DIR/x; V="a
b"; set -x; exit 5`))
	step.OutputVars = []string{"V"}
	step.User = "1000"
	res, _ := r.run(step)
	require.Equal(t, 5, res.ExitCode)
	require.Equal(t, map[string]string{"A": "1", "V": "a\nb"}, res.Outputs)
	require.Equal(t, map[string]string{"S": "s"}, res.Secrets)
	require.Equal(t, map[string]string{"E": "e"}, res.Env)
	require.Equal(t, "x\n", string(res.Artifact))

	step = in(engine.Image, sh("step", `echo A=1 >> /elsewhere/out.env; echo B=2 >> $DRONE_OUTPUT; echo C=3 > secret.env; touch /scratch/x; echo $HARNESS_SCRATCH_DIR`))
	step.OutputVarFile, step.SecretVarFile, step.ScratchDir = "/elsewhere/out.env", "secret.env", "/scratch"
	res, out := r.run(step)
	require.Equal(t, "/scratch\n", out)
	require.Equal(t, map[string]string{"A": "1", "B": "2"}, res.Outputs)
	require.Equal(t, map[string]string{"C": "3"}, res.Secrets)
}

// Rule T7.
func TestContainerStepGetsItsGrace(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t, withGrace(time.Minute))
	r.init()
	ctx, cancel := context.WithCancel(t.Context())
	out := newBuffer()
	done := make(chan error, 1)
	go func() {
		step := in(engine.Image, sh("step", "trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.1; done"))
		_, err := r.d.Execute(ctx, r.env, &driver.Step{Step: step}, out, r.ledger)
		done <- err
	}()
	out.waitFor(t, "started")
	start := time.Now()
	cancel()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	require.Equal(t, "started\nbye\n", out.String())
	require.Less(t, time.Since(start), 30*time.Second)
}

func TestContainerStepThatCannotStart(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	_, err := r.fail(in(engine.Image, stage.Step{ID: "step", Run: stage.Run{Entrypoint: []string{"no-such-program"}}}))
	require.ErrorContains(t, err, `"no-such-program"`)
	_, err = r.fail(in("dlite-test/no-such-image:1", sh("step", "true")))
	require.ErrorContains(t, err, "dlite-test/no-such-image:1")
	step := in(engine.Image, sh("step", "true"))
	step.PortBindings = map[string]string{"x": "y"}
	_, err = r.fail(step)
	require.ErrorContains(t, err, "port binding")
	step.PortBindings, step.Pull = nil, "Sometimes"
	_, err = r.fail(step)
	require.ErrorContains(t, err, "Sometimes")
	require.Empty(t, containers(t, engine, r.env.ID))
}

// Without an entrypoint and a command the image's own run.
func TestContainerStepRunsTheCommandOfTheImage(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	image := engine.ImageWith(t, `ENTRYPOINT ["echo"]`, `CMD ["from the image"]`)
	_, out := r.run(in(image, stage.Step{ID: "step"}))
	require.Equal(t, "from the image\n", out)
	_, out = r.run(in(image, stage.Step{ID: "step", Run: stage.Run{Command: []string{"from the step"}}}))
	require.Equal(t, "from the step\n", out)
}
