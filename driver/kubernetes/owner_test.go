package kubernetes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule T2: if a delegate has lost all permissions, its pods do not remain: the cluster
// removes them, with the objects that they own, when their owner is removed.
func TestPodsAreRemovedWithTheirOwner(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	p.kubectl(t, "create", "configmap", "owner")
	tx := p.begin(t, p.driver(t, func(cfg *kubernetes.Config) { cfg.Owner = "owner" }))
	private := p.sh("private", "echo begun; sleep 600")
	private.Auth = &stage.Auth{Username: "user", Password: "visibly-fake", Address: "registry.invalid"}
	r := tx.start(t.Context(), t, private, "begun")
	require.Contains(t, p.kubectl(t, "get", "secrets", "--output", "name"), "dlite-")
	other := p.begin(t, p.driver(t))
	p.kubectl(t, "delete", "configmap", "owner")
	r.failsAtOnce("deleted")
	p.kubectl(t, "wait", "--for=delete", "pod/"+tx.pod(t), "secret/"+tx.pod(t), "--timeout=90s")
	assert.Equal(t, "on\n", other.run(t, p.sh("step", "echo on")), "it has no owner")
}

// Rule T2: without the owner the driver creates no pod, because nothing might remove it.
func TestAnInitWithoutTheOwnerOfItsPodFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.prepare(t, p.driver(t, func(cfg *kubernetes.Config) { cfg.Owner = "owner" }))
	require.ErrorContains(t, tx.init(t), `configmaps "owner" not found`)
	assert.Empty(t, tx.ledger.all())
}
