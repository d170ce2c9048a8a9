package upgrade

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

// Rules G4, T5: a running step continues while its delegate replaces itself. It runs once.
func TestAStageSurvivesTheUpgrade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	shared := filepath.Join(t.TempDir(), "shared")
	require.NoError(t, os.Mkdir(shared, 0o755))
	for _, dir := range []string{shared, filepath.Dir(shared), filepath.Dir(filepath.Dir(shared))} {
		require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // the step runs as another user
	}
	i := r.install(t, "busy", "TRUSTED_STEPS=false")
	i.start("")
	i.until("the registration", func() bool { return i.delegate().Version == oldVersion })
	start, runs := filepath.Join(shared, "go"), filepath.Join(shared, "runs")
	init, err := json.Marshal(stage.InitRequest{Volumes: []*stage.Volume{{Host: &stage.HostVolume{ID: "shared", Name: "shared", Path: shared}}}})
	require.NoError(t, err)
	data, err := json.Marshal(stage.Step{
		ID: "one", Volumes: []*stage.VolumeMount{{Name: "shared", Path: "/shared"}},
		Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{
			"echo run >> $DLITE_VOLUME_SHARED/runs; while [ ! -e $DLITE_VOLUME_SHARED/go ]; do sleep 0.1; done",
		}},
	})
	require.NoError(t, err)
	_, err = r.client.SubmitStage(t.Context(), api.StageRequest{ID: "survivor", Init: init, Steps: []api.StepRequest{{ID: "one", Data: data}}})
	require.NoError(t, err)
	i.until("the step", func() bool { _, err := os.Stat(runs); return err == nil })
	i.stage(newVersion, bound)
	require.Equal(t, newVersion, i.settled())
	require.NoError(t, os.WriteFile(start, nil, 0o600))
	var end api.Stage
	i.until("the end of the stage", func() bool {
		end, err = r.client.Stage(t.Context(), "survivor")
		require.NoError(t, err)
		return end.Ended()
	})
	assert.Equal(t, api.Success, end.Status, "%+v", end)
	b, err := os.ReadFile(runs)
	require.NoError(t, err)
	assert.Equal(t, "run\n", string(b))
}

// Rule G4: delegates update themselves when the manager permits it, one at a time. When a version fails, the others
// keep theirs, until an operator names a good one.
func TestAFleetUpdatesItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.releases.stable(oldVersion) // the manager decides
	r.releases.release(brokenVersion, archiveOf(t, entry{name: "delegate", content: fmt.Sprintf(
		"#!/bin/sh\ncase $1 in version) echo delegate %s;; *) exit 3;; esac\n", brokenVersion)}))
	var fleet []*installed
	for n := range 3 {
		i := r.install(t, fmt.Sprint("fleet-", n), "UPGRADE_CHECK_INTERVAL_SECS=10")
		i.start("")
		fleet = append(fleet, i)
	}
	fleet[0].until("the fleet", func() bool {
		n := 0
		for _, i := range fleet {
			if i.delegate().Version == oldVersion {
				n++
			}
		}
		return n == len(fleet)
	})
	update := func(version, state string) (u api.Upgrade) {
		_, err := r.client.SetUpgrade(t.Context(), api.Upgrade{Version: version, Share: "1"})
		require.NoError(t, err)
		fleet[0].until("the update to "+version, func() bool {
			u, err = r.client.Upgrade(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, len(u.Away), 1)
			return u.State == state && (state == "stopped" || u.Versions[version] == len(fleet) && u.Returned == len(fleet))
		})
		return u
	}
	u := update(brokenVersion, "stopped")
	require.Len(t, u.Failed, 1)
	assert.Contains(t, u.Failed[0].Reason, "ended before it registered (exit status 3)")
	assert.Equal(t, len(fleet), u.Versions[oldVersion])
	// Its version is older than the broken one, and newer than the version of the fleet.
	u = update(newVersion, "running")
	assert.Empty(t, u.Failed)
	for _, i := range fleet {
		assert.Equal(t, newVersion, i.version())
	}
	t.Logf("%d delegates updated after a broken version on one of them", u.Returned)
}

// Rule G4: a manager refuses an old delegate, which then upgrades itself.
func TestARefusedDelegateUpgradesItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--min-delegate-version", newVersion)
	alone := r.install(t, "refused alone")
	alone.start("")
	<-alone.run.ended
	assert.Contains(t, alone.text(), "this manager accepts "+newVersion+" and newer ones: upgrade the delegate")
	i := r.install(t, "refused", "UPGRADE_CHECK_INTERVAL_SECS=10")
	i.start("")
	i.until("the registration of the new version", func() bool { return i.delegate().Version == newVersion })
	assert.Equal(t, newVersion, i.settled())
}

// Rule G4: a service that may not write to its program keeps upgrades in its state directory. The program of the
// service starts the newer one, counts its starts, and takes the previous one back.
func TestTheUpgradeOfAService(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs another user")
	}
	const nobody = 65534
	r := newRig(t)
	i := r.install(t, "service")
	state := filepath.Join(filepath.Dir(i.place.dir()), "state")
	require.NoError(t, os.Mkdir(state, 0o755))
	for dir := filepath.Dir(i.config); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // another user runs the program
	}
	require.NoError(t, os.Chmod(filepath.Dir(i.config), 0o777)) //nolint:gosec // as above
	for _, f := range []string{state, i.config} {
		require.NoError(t, os.Chown(f, nobody, nobody))
	}
	i.attributes = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	socket := filepath.Join(state, "run", "status.sock")
	i.environ = []string{"STATE_DIRECTORY=" + state, "HOME=" + state, "STATUS_SOCKET=" + socket}
	fixed := i.place.program
	kept := place{program: filepath.Join(state, "program", "delegate"), fixed: fixed}

	i.start("")
	i.until("the registration", func() bool { return i.delegate().Version == oldVersion })
	out, err := i.command("upgrade", "--env-file", i.config, "--to", newVersion)
	require.NoError(t, err, out)
	i.until("the new version", func() bool { return i.delegate().Version == newVersion })
	assert.True(t, strings.HasSuffix(strings.TrimSpace(out), "done"), out)
	assert.Equal(t, oldVersion, i.version(), "the program of the service never changes")
	_, err = service.AskUpgrade(t.Context(), socket, service.Upgrade{Version: oldVersion})
	require.ErrorContains(t, err, "--allow-downgrade")
	_, err = service.AskUpgrade(t.Context(), socket, service.Upgrade{Version: "v9.9.9/.."})
	require.Error(t, err)
	a, err := service.AskUpgrade(t.Context(), socket, service.Upgrade{})
	require.NoError(t, err)
	assert.Equal(t, service.Upgraded{Version: newVersion, Current: true}, a)
	// Root asks the process, and follows it.
	for _, to := range []string{oldVersion, newVersion} {
		a, err = service.AskUpgrade(t.Context(), socket, service.Upgrade{Version: to, Downgrade: true})
		require.NoError(t, err)
		assert.Equal(t, service.Upgraded{Version: to}, a)
		phases := ""
		require.NoError(t, FollowService(t.Context(), state, fixed, to, func(phase string) { phases += phase + " " }))
		assert.True(t, strings.HasSuffix(phases, "done "), phases)
		i.until(to, func() bool { d := i.delegate(); return d.Version == to && d.State == "ALIVE" })
	}
	i.kill()
	i.start("")
	i.until("the new version again", func() bool { d := i.delegate(); return d.Version == newVersion && d.State == "ALIVE" })
	i.kill()

	// It ends at each start from now on.
	j, err := kept.read()
	require.NoError(t, err)
	require.Equal(t, Done, j.Phase)
	require.NoError(t, kept.enter(j, Probation, ""))
	require.NoError(t, os.Chown(kept.journal(), nobody, nobody))
	starts := 0
	for ; starts < 10; starts++ {
		i.start("probation")
		select {
		case <-i.run.ended:
			i.waitKilled()
			continue
		case <-time.After(rigTimeout):
			require.Fail(t, "neither ends nor runs", i.text())
		case <-i.registered(oldVersion):
		}
		break
	}
	assert.Equal(t, maxStarts-j.Starts, starts, "starts before the previous version returned")
	j, err = kept.read()
	require.NoError(t, err)
	assert.Equal(t, Failed, j.Phase)
}

// registered is closed when the delegate has registered with a version, or the test has ended.
func (i *installed) registered(version string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i.t.Context().Err() == nil {
			all, err := i.client.Delegates(i.t.Context())
			if err != nil {
				return
			}
			for _, d := range all {
				if d.Name == i.name && d.State == "ALIVE" && d.Version == version {
					return
				}
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-i.t.Context().Done():
			}
		}
	}()
	return done
}
