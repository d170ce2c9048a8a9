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

// D7: a node that runs out of memory evicts its pods, which their steps are told at
// once. It takes no others meanwhile: one that waits for it says why, and runs when
// there is memory again; one that it is given all the same fails at once. Not
// parallel: it is everybody's node.
func TestANodeThatRunsOutOfMemoryFailsItsSteps(t *testing.T) {
	p, api := newFault(t)
	d := p.driver(t)
	// One that has asked for memory is evicted; one that has not is not even taken back
	// by the kubelet that starts.
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
	_, err := r.end(patience) // the node looks every ten seconds
	requireReason(t, err, kubernetes.Evicted)
	require.ErrorContains(t, err, "low on resource: memory")
	// The scheduler learns it from the node's taint.
	require.Eventually(t, func() bool {
		node, err := api.Nodes().Get(t.Context(), p.Node, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeMemoryPressure })
	}, patience, 100*time.Millisecond)

	forced := p.prepare(t, p.driver(t, func(cfg *kubernetes.Config) { cfg.PodTemplate = fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, p.Node) }))
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	err = forced.d.Init(ctx, forced.env, forced.ledger)
	requireReason(t, err, kubernetes.Evicted)
	require.ErrorContains(t, err, "MemoryPressure")

	waiting, ready := p.prepare(t, d), make(chan error, 1)
	go func() { ready <- waiting.d.Init(t.Context(), waiting.env, waiting.ledger) }()
	waiting.log.WaitFor(t, "No node takes the pod yet")
	require.Contains(t, waiting.log.String(), corev1.TaintNodeMemoryPressure)
	p.RecoverMemory(t)
	recovered = true
	select {
	case err := <-ready:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "the pod is not taken", waiting.log.String())
	}
	requireCounted(t, waiting.start(t.Context(), t, p.sh("after", counting(3)), "line 0"), 3)
}

// D7: a node that is given a pod by others than the scheduler, or at the wrong moment,
// refuses it, and the driver does not try again.
func TestAPodThatItsNodeHasNoRoomForFailsTheInitAtOnce(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	tx := p.prepare(t, p.driver(t, func(cfg *kubernetes.Config) {
		cfg.PodTemplate = fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, p.Node)
		cfg.HubResources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Ti")}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), atOnce)
	defer cancel()
	err := tx.d.Init(ctx, tx.env, tx.ledger)
	requireReason(t, err, kubernetes.Unschedulable)
	require.ErrorContains(t, err, "OutOfmemory")
	require.ErrorContains(t, err, "memory, requested")
}
