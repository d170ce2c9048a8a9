package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

func withSettings(settings string) func(*driver.Environment) {
	return func(env *driver.Environment) { env.Network = env.Network.WithPodSettings(settings) }
}

// A stage chooses its namespace, mounts objects of it and changes its pod, as far as the operator allows it. The pod
// is found, used and removed there. An owner in the namespace of the delegate must not end it.
func TestAStageRunsInTheNamespaceThatItChooses(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	other := p.NewNamespace(t)
	p.kubectl(t, "create", "configmap", "owner")
	for _, object := range [][]string{{"configmap", "certs"}, {"secret", "generic", "key"}} {
		out, err := p.Kubectl(t, append(append([]string{"create", "-n", other}, object...), "--from-literal=file=of-"+object[len(object)-1])...)
		require.NoError(t, err, out)
	}
	d := p.driver(t, func(c *kubernetes.Config) {
		c.Owner = "owner"
		c.StageSettings = []string{"namespace=" + other, "configMapVolumes=certs", "secretVolumes=*", "podSpecOverlay=dnsPolicy"}
	})
	step := p.sh("step", "cat /certs/file; echo; cat /key/file; echo; touch /key/x || echo read-only")
	step.Volumes = []*stage.VolumeMount{{Name: "volume-0", Path: "/certs"}, {Name: "volume-1", Path: "/key"}}
	later := step
	later.ID = "later"
	tx := p.begin(t, d, announce(step), withSettings(`{"namespace":"`+other+`","podSpecOverlay":{"dnsPolicy":"Default"},
		"volumes":[{"name":"volume-0","configMap":{"name":"certs"}},{"name":"volume-1","secret":{"secretName":"key"}}]}`))
	for _, s := range []stage.Step{step, later} { // in the container that waits, and in one that is added
		out := tx.run(t, s)
		assert.Contains(t, out, "of-certs\nof-key\n")
		assert.Contains(t, out, "read-only\n")
	}
	id := other + "/" + tx.pod(t)
	policy, err := p.Kubectl(t, "get", "pod", tx.pod(t), "-n", other, "-o", "jsonpath={.spec.dnsPolicy}")
	require.NoError(t, err)
	assert.Equal(t, "Default", policy)
	found, err := d.Find(t.Context(), map[string]string{driver.LabelTransaction: t.Name()})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, id, found[0].ID)
	tx.cleanup(t)
	left, err := p.Kubectl(t, "get", "pods", "-n", other, "-o", "name")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A stage bounds the time until its pod runs, and one whose config map does not exist fails at once.
func TestAStageFailsIfItsPodDoesNotStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.driver(t, func(c *kubernetes.Config) {
		c.StageSettings = []string{"configMapVolumes"}
		c.StartTimeout = 2 * patience // more than the test waits
	})
	// A busy cluster may not have looked for a node within the two seconds: then the reason is the start.
	for reasons, change := range map[string]func(*driver.Environment){
		"unschedulable start": func(env *driver.Environment) {
			env.Network = env.Network.OnNode(map[string]string{"no": "node"}).WithPodSettings(`{"initTimeoutSeconds":2}`)
		},
		"volume": withSettings(`{"volumes":[{"name":"v","configMap":{"name":"absent"}}]}`),
	} {
		tx := p.prepare(t, d, change)
		var why *kubernetes.Error
		require.ErrorAs(t, tx.init(t), &why, reasons)
		assert.Contains(t, strings.Fields(reasons), why.Reason, why)
		tx.cleanup(t)
	}
}
