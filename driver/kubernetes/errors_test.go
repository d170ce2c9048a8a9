package kubernetes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// clusterError returns the error of the cluster in err.
func clusterError(t *testing.T, err error) *kubernetes.Error {
	t.Helper()
	var e *kubernetes.Error
	require.ErrorAs(t, err, &e)
	return e
}

// Rule D7: a volume that cannot be mounted fails the init, and the error has its path.
func TestAMissingDirectoryOfTheNodeFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "h", Name: "h", Path: "/no/such/folder"}}}
	})
	e := clusterError(t, tx.init(t))
	assert.Equal(t, "volume", e.Reason)
	assert.Contains(t, e.Error(), "/no/such/folder")
}

// Rule D7.
func TestAClaimThatDoesNotExistFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Claim: &stage.ClaimVolume{ID: "c", Name: "c", Claim: "no-such-claim"}}}
	})
	e := clusterError(t, tx.init(t))
	assert.Equal(t, "volume", e.Reason)
	assert.Contains(t, e.Error(), "no-such-claim")
}

// The driver creates no directory that it cannot remove (rule T2).
func TestAHostDirectoryToRemoveIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "h", Path: "/tmp/x", Create: true, Remove: true}}}
	})
	require.ErrorContains(t, tx.init(t), "cannot remove")
	assert.Empty(t, tx.ledger.all())
}

// Rule D7: the log of the init reports why no node accepts a pod, and the init fails after a
// while.
func TestAnUnschedulablePodReportsItsReason(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.driver(t, func(c *kubernetes.Config) {
		c.NodeSelector, c.StartTimeout = map[string]string{"no-such": "node"}, 5*time.Second
	})
	tx := p.prepare(t, d)
	e := clusterError(t, tx.init(t))
	assert.Equal(t, "unschedulable", e.Reason)
	assert.Contains(t, e.Error(), "selector")
	assert.Contains(t, tx.log.String(), "No node has accepted the pod yet")
}

// Rule D7: the node retries a registry that cannot be reached, for a limited time.
func TestAnUnreachableRegistryIsReported(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	step := p.sh("step", "echo RAN")
	step.Image = "no-such.invalid/image:1"
	_, err := tx.execute(t, step, drivertest.NewOutput())
	e := clusterError(t, err)
	assert.Equal(t, "image", e.Reason)
	assert.Contains(t, e.Error(), "no-such.invalid/image:1")
	assert.Equal(t, "still\n", tx.run(t, p.sh("step", "echo still")), "the pod continues")
}

// Rule D7: the end of its lifetime ends the pod, and the error reports it.
func TestTheEndOfTheLifetimeIsReported(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t, func(c *kubernetes.Config) { c.Lifetime = 12 * time.Second }))
	_, err := tx.execute(t, p.sh("step", "sleep 600"), drivertest.NewOutput())
	assert.Equal(t, "deadline", clusterError(t, err).Reason)
}

// Rule D7: a failed clone fails the init, and the log has the output of git. The images here
// have no git.
func TestACloneThatFailsFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, image := range map[string]string{"hub": "", "separate container": p.Image} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx := p.prepare(t, p.driver(t, func(c *kubernetes.Config) { c.GitImage = image }), func(env *driver.Environment) {
				env.Clone = &stage.Clone{URL: "https://user:hunter2@git.test/repo.git"}
			})
			err := tx.init(t)
			require.ErrorContains(t, err, "git")
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, tx.log.String(), "hunter2")
		})
	}
}

// Rule D7: a failed init container of a template or a webhook explains why the pod does not
// start.
func TestAFailedInitContainerOfATemplateIsReported(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for script, want := range map[string][2]string{
		`image: %s, command: [sh, -c, "echo no permission; exit 2"]`:          {"ended", "no permission"},
		"image: %s-none, imagePullPolicy: Never, command: [sh, -c, 'exit 0']": {"image", "ErrImageNeverPull"},
	} {
		tx := p.prepare(t, p.driver(t, func(c *kubernetes.Config) {
			c.PodTemplate = fmt.Appendf(nil, "spec: {initContainers: [{name: proxy, terminationMessagePolicy: FallbackToLogsOnError, "+script+"}]}", p.Image)
		}))
		err := tx.init(t)
		requireReason(t, err, want[0])
		require.ErrorContains(t, err, "container proxy")
		require.ErrorContains(t, err, want[1])
	}
}
