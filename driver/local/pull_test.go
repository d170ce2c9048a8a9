//go:build unix

package local_test

import (
	"testing"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D3: the pull policies, against a registry that counts requests.
func TestContainerStepFollowsItsPullPolicy(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	registry := engine.NewRegistry(t, "", "")
	step := sh("step", "echo ran")
	step.Image = registry.Image

	step.Pull = "Never"
	_, err := r.fail(step)
	require.ErrorContains(t, err, "o such image")
	var kind interface{ FailureKind() string }
	require.ErrorAs(t, err, &kind)
	require.Equal(t, stage.FailureImage, kind.FailureKind())
	require.Zero(t, registry.Pulls())

	step.Pull = ""
	_, out := r.run(step)
	require.Contains(t, out, "Pulling image "+registry.Image+"\n")
	require.Contains(t, out, "ran\n")
	pulled := registry.Pulls()
	require.NotZero(t, pulled)

	for _, policy := range []string{"", "default", "IfNotPresent", "Never"} {
		step.Pull = policy
		_, out := r.run(step)
		require.Equal(t, "ran\n", out, policy)
	}
	require.Equal(t, pulled, registry.Pulls())

	step.Pull = "Always"
	_, out = r.run(step)
	require.Contains(t, out, "Image is up to date")
	require.Greater(t, registry.Pulls(), pulled)
}

// The tag latest is pulled by default. If the pull fails, the local image serves.
func TestContainerStepFallsBackToTheLocalImage(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	missing := "127.0.0.1:1/team/tool"
	require.NoError(t, engine.Client.ImageTag(t.Context(), engine.Image, missing+":latest"))
	t.Cleanup(func() { engine.RemoveImage(t, missing+":latest") })
	step := sh("step", "echo ran")
	step.Image = missing
	_, out := r.run(step)
	require.Contains(t, out, "Using the local image")
	require.Contains(t, out, "\nran\n")
	step.Pull = "Always"
	out, err := r.fail(step)
	require.ErrorContains(t, err, "pull image "+missing)
	require.NotContains(t, out, "ran")
}

// An error inside the progress stream fails the pull.
func TestContainerStepReportsAnErrorInTheProgressOfAPull(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	registry := engine.NewRegistry(t, "", "")
	registry.FailBlobs("the layers are gone")
	step := sh("step", "echo ran")
	step.Image = registry.Image
	_, err := r.fail(step)
	require.ErrorContains(t, err, "pull image")
	require.NotZero(t, registry.Pulls())
	require.Empty(t, r.ledger.ofKind("container")[1:], "only the first try was recorded")
}

func TestContainerStepAuthenticatesAtItsRegistryAlone(t *testing.T) {
	t.Parallel()
	r, engine := dockerRig(t)
	r.init()
	registry := engine.NewRegistry(t, "robot", "not-a-real-password")
	step := sh("step", "echo ran")
	step.Image = registry.Image

	for _, auth := range []*stage.Auth{
		nil,
		{Address: registry.Host, Username: "robot", Password: "wrong-password"},
		{Address: "https://other.example", Username: "robot", Password: "not-a-real-password"},
	} {
		step.Auth = auth
		out, err := r.fail(step)
		require.ErrorContains(t, err, "pull image")
		require.NotContains(t, err.Error()+out, "password")
	}
	require.NotContains(t, registry.Credentials(), "robot:not-a-real-password", "they were for another registry")

	step.Auth = &stage.Auth{Address: "http://" + registry.Host + "/v2/", Username: "robot", Password: "not-a-real-password"}
	_, out := r.run(step)
	require.Contains(t, out, "ran\n")
	require.Contains(t, registry.Credentials(), "robot:not-a-real-password")
}

// eventsOf selects the creations of a transaction's containers.
func eventsOf(id string) events.ListOptions {
	return events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("type", "container"), filters.Arg("event", "create"), filters.Arg("label", driver.LabelTransaction+"="+id))}
}
