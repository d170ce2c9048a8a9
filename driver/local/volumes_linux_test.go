package local_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

func limited(medium string) *stage.Volume {
	return &stage.Volume{Temp: &stage.TempVolume{ID: "v", Name: "data", Medium: medium, SizeLimit: 1 << 20}}
}

// A volume in memory holds no more than its limit, in containers and on the host, and is removed with
// its transaction.
func TestTheSizeLimitOfAVolumeInMemoryHolds(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "nothing can be mounted")
	}
	r := newRig(t)
	log := newBuffer()
	r.env.Volumes, r.env.Log = []*stage.Volume{limited("memory")}, log
	r.init()
	require.Empty(t, log.String())
	step := sh("step", `head -c 900000 /dev/zero > $DLITE_VOLUME_DATA/fits && echo fits; head -c 2000000 /dev/zero > $DLITE_VOLUME_DATA/more`)
	step.Volumes = []*stage.VolumeMount{{Name: "data", Path: "/data"}}
	res, out := r.run(step)
	require.NotZero(t, res.ExitCode)
	require.Contains(t, out, "fits\n")
	require.Contains(t, out, "No space left on device")
	require.NoError(t, r.d.Init(t.Context(), r.env, r.ledger), "a second init keeps the files of the volume")
	step = sh("step", `wc -c < $DLITE_VOLUME_DATA/fits`)
	step.Volumes = []*stage.VolumeMount{{Name: "data", Path: "/data"}}
	_, out = r.run(step)
	require.Equal(t, "900000\n", out)

	mounts := r.ledger.ofKind("mount")
	require.Len(t, mounts, 1)
	other, err := newDriver(withWorkDir(r.work), withMemoryDir(r.memory))
	require.NoError(t, err)
	left, err := other.Cleanup(t.Context(), r.ledger.resources())
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoDirExists(t, mounts[0].ID)
	require.NoError(t, other.Close())
}

func TestTheSizeLimitOfAVolumeHoldsInContainers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testbed.Unavailable(t, "root", "nothing can be mounted")
	}
	r, engine := dockerRig(t)
	r.env.Volumes = []*stage.Volume{limited("memory")}
	r.init()
	step := in(engine.Image, sh("step", `head -c 900000 /dev/zero > /data/fits && echo fits; head -c 2000000 /dev/zero > /data/more`))
	step.Volumes = []*stage.VolumeMount{{Name: "data", Path: "/data"}}
	res, out := r.run(step)
	require.NotZero(t, res.ExitCode)
	require.Contains(t, out, "fits\n")
}

// The log names a limit that is not enforced.
func TestTheLogNamesASizeLimitThatIsNotEnforced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log := newBuffer()
	r.env.Volumes, r.env.Log = []*stage.Volume{limited("")}, log
	r.init()
	require.Contains(t, log.String(), `The size limit of volume "data" is not enforced`)
	require.Empty(t, r.ledger.ofKind("mount"))
}
