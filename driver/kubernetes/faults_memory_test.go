package kubernetes_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegate-io/dlite/driver/kubernetes"
)

// Rule D7: a node that runs out of memory evicts its pods, and their steps fail at once. It
// accepts no others meanwhile: a pod that waits for the node reports the reason, and runs
// when the node has memory again. A pod that is forced onto the node fails at once. Not
// parallel: all tests share the node.
func TestANodeThatRunsOutOfMemoryFailsItsSteps(t *testing.T) {
	p, api := newFault(t)
	d := p.driver(t)
	// The kubelet evicts a pod that requests memory. After its restart it would not even
	// accept a pod without a request again.
	r := p.begin(t, p.driver(t, func(cfg *kubernetes.Config) {
		cfg.HubResources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
	})).start(t.Context(), t, p.sh("long", "echo begun; sleep 600"), "begun")
	p.ExhaustMemory(t)
	recovered := false
	defer func() {
		if !recovered {
			p.RecoverMemory(t)
		}
	}()
	_, err := r.end(patience) // the node checks every ten seconds
	requireReason(t, err, "evicted")
	require.ErrorContains(t, err, "low on resource: memory")
	// The scheduler reads it from the taint of the node.
	require.Eventually(t, func() bool {
		node, err := api.Nodes().Get(t.Context(), p.Node, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeMemoryPressure })
	}, patience, 100*time.Millisecond)

	forced := p.prepare(t, p.driver(t, func(cfg *kubernetes.Config) { cfg.PodTemplate = fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, p.Node) }))
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	err = forced.d.Init(ctx, forced.env, forced.ledger)
	requireReason(t, err, "evicted")
	require.ErrorContains(t, err, "MemoryPressure")

	waiting, ready := p.prepare(t, d), make(chan error, 1)
	go func() { ready <- waiting.d.Init(t.Context(), waiting.env, waiting.ledger) }()
	waiting.log.WaitFor(t, "No node has accepted the pod yet")
	require.Contains(t, waiting.log.String(), corev1.TaintNodeMemoryPressure)
	p.RecoverMemory(t)
	recovered = true
	select {
	case err := <-ready:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "no node accepts the pod", waiting.log.String())
	}
	requireCounted(t, waiting.start(t.Context(), t, p.sh("after", counting(3)), "line 0"), 3)
}

// Rule D7: a node rejects a pod that it has no memory for, and the driver does not retry. A
// template can bypass the scheduler like this.
func TestAPodThatItsNodeRejectsFailsTheInitAtOnce(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	tx := p.prepare(t, p.driver(t, func(cfg *kubernetes.Config) {
		cfg.PodTemplate = fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, p.Node)
		cfg.HubResources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Ti")}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	err := tx.d.Init(ctx, tx.env, tx.ledger)
	requireReason(t, err, "unschedulable")
	require.ErrorContains(t, err, "OutOfmemory")
	require.ErrorContains(t, err, "memory, requested")
}
