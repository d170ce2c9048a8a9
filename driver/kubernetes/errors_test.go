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

// told is the error that the cluster's words became.
func told(t *testing.T, err error) *kubernetes.Error {
	t.Helper()
	var e *kubernetes.Error
	require.ErrorAs(t, err, &e)
	return e
}

// rule D7: what cannot be mounted fails the init, with the folder's path.
func TestAFolderThatTheNodeDoesNotHaveFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "h", Name: "h", Path: "/no/such/folder"}}}
	})
	e := told(t, tx.init(t))
	assert.Equal(t, kubernetes.Volume, e.Reason)
	assert.Contains(t, e.Error(), "/no/such/folder")
}

// rule D7
func TestAClaimThatDoesNotExistFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Claim: &stage.ClaimVolume{ID: "c", Name: "c", Claim: "no-such-claim"}}}
	})
	e := told(t, tx.init(t))
	assert.Equal(t, kubernetes.Volume, e.Reason)
	assert.Contains(t, e.Error(), "no-such-claim")
}

// The driver makes no directory that it could not remove (rule T2).
func TestAHostFolderToRemoveIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t), func(env *driver.Environment) {
		env.Volumes = []*stage.Volume{{Host: &stage.HostVolume{ID: "h", Path: "/tmp/x", Create: true, Remove: true}}}
	})
	require.ErrorContains(t, tx.init(t), "cannot remove")
	assert.Empty(t, tx.ledger.all())
}

// rule D7: a pod that no node can ever take says why while it waits, and when it has
// waited for long enough.
func TestAPodThatNoNodeTakesSaysSo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.driver(t, func(c *kubernetes.Config) {
		c.NodeSelector, c.StartTimeout = map[string]string{"no-such": "node"}, 5*time.Second
	})
	tx := p.prepare(t, d)
	e := told(t, tx.init(t))
	assert.Equal(t, kubernetes.Unschedulable, e.Reason)
	assert.Contains(t, e.Error(), "selector")
	assert.Contains(t, tx.log.String(), "No node takes the pod yet")
}

// rule D7: a registry that cannot be reached is tried again by the node, for a while.
func TestARegistryThatCannotBeReachedIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	step := p.sh("step", "echo RAN")
	step.Image = "no-such.invalid/image:1"
	_, err := tx.execute(t, step, drivertest.NewOutput())
	e := told(t, err)
	assert.Equal(t, kubernetes.Image, e.Reason)
	assert.Contains(t, e.Error(), "no-such.invalid/image:1")
	assert.Equal(t, "still\n", tx.run(t, p.sh("step", "echo still")), "the pod goes on")
}

// rule D7: a lifetime that is over ends the pod and is told.
func TestALifetimeThatIsOverIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t, func(c *kubernetes.Config) { c.Lifetime = 12 * time.Second }))
	_, err := tx.execute(t, p.sh("step", "sleep 600"), drivertest.NewOutput())
	assert.Equal(t, kubernetes.Deadline, told(t, err).Reason)
}

// D7: a clone that fails fails the init, and what git has to say is in the log. The
// images here have no git.
func TestACloneThatFailsFailsTheInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, image := range map[string]string{"hub": "", "container of its own": p.Image} {
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

// D7: what a template, or a webhook, has begin before everything else is why the pod does
// not begin.
func TestAnInitContainerOfATemplateThatFailsIsTold(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for script, want := range map[string][2]string{
		`image: %s, command: [sh, -c, "echo no right; exit 2"]`:               {string(kubernetes.Ended), "no right"},
		"image: %s-none, imagePullPolicy: Never, command: [sh, -c, 'exit 0']": {string(kubernetes.Image), "ErrImageNeverPull"},
	} {
		tx := p.prepare(t, p.driver(t, func(c *kubernetes.Config) {
			c.PodTemplate = fmt.Appendf(nil, "spec: {initContainers: [{name: proxy, terminationMessagePolicy: FallbackToLogsOnError, "+script+"}]}", p.Image)
		}))
		err := tx.init(t)
		requireReason(t, err, kubernetes.Reason(want[0]))
		require.ErrorContains(t, err, "container proxy")
		require.ErrorContains(t, err, want[1])
	}
}
