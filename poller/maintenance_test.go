package poller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// In maintenance, open stages and standalone tasks continue, and a new stage waits for its end.
func TestADelegateInMaintenanceTakesNoNewStages(t *testing.T) {
	t.Parallel()
	srv := server(t)
	d := start(t, srv, stageRoutes(echo), poller.WithSlots(capacity.NewSlots(5)), poller.WithHeartbeat(time.Hour))
	wait(t, submit(srv, initTask, `{}`))
	assert.Empty(t, d.Health().Maintenance)

	d.SetMaintenance("the disk is replaced")
	assert.Equal(t, "the disk is replaced", d.Health().Maintenance)
	assert.False(t, d.Health().Draining)
	late := submit(srv, initTask, `{}`)
	require.Eventually(t, func() bool { return d.Stats().Refused["maintenance"] == 1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, task.OK, wait(t, submit(srv, "echo", `{}`)).Code, "a standalone task runs")
	assert.Equal(t, task.OK, wait(t, submit(srv, executeTask, `{}`)).Code, "the open stage continues")
	assert.Equal(t, task.OK, wait(t, submit(srv, cleanupTask, `{}`)).Code)
	assert.Zero(t, late.Acquires())
	// The manager knows at once: heartbeats are an hour apart.
	draining := func(want bool) func() bool {
		return func() bool {
			list := srv.Delegates()
			return len(list) == 1 && list[0].Registration.Draining == want
		}
	}
	require.Eventually(t, draining(true), 20*time.Second, time.Millisecond)

	d.SetMaintenance("")
	assert.Equal(t, task.OK, wait(t, late).Code)
	require.Eventually(t, draining(false), 20*time.Second, time.Millisecond)
	assert.Equal(t, int64(1), d.Stats().Refused["maintenance"])
}

// A maintenance that began before the registration is in it.
func TestADelegateRegistersInMaintenance(t *testing.T) {
	t.Parallel()
	var s script
	p := poller.New(&s, router.New(nil))
	p.SetMaintenance("not yet")
	_, err := p.Register(t.Context())
	require.NoError(t, err)
	require.True(t, s.registrations[0].Draining)
	p.SetMaintenance("")
	_, err = p.Register(t.Context())
	require.NoError(t, err)
	require.False(t, s.registrations[1].Draining)
}
