package kubernetes_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/task/stage"
)

// Rules D1, D7: the conformance suite with pods of a real cluster.
func TestConformance(t *testing.T) {
	p, api := newFault(t)
	s := &site{place: p, api: api}
	s.AgentImage(t) // first: its file is removed when this test ends
	drivertest.Run(t, drivertest.Target{
		Name: "kubernetes",
		Site: func(testing.TB) drivertest.Site { return s },
		Step: func(step *stage.Step) { step.Image = s.Image },
		Can: drivertest.Capabilities{
			OOM: true, Users: true, Mounts: true, HostFolders: true, Names: true, Labels: true, Interleaved: true, Separated: true,
		},
	})
}

// site is a namespace of the cluster. The suite inspects it from outside: it reads the
// processes from the proc file system of this machine, which the node shares.
type site struct {
	*place
	api corev1client.CoreV1Interface
}

func (s *site) Driver(tb testing.TB) driver.Driver {
	tb.Helper()
	// the suite closes it
	return s.driver(tb)
}

func (s *site) Running(tb testing.TB, transaction string) []string {
	tb.Helper()
	return testbed.ProcessesWith("environ", drivertest.TransactionVariable+"="+transaction+"\x00")
}

func (s *site) Remains(tb testing.TB, transaction string) []string {
	tb.Helper()
	ctx := context.WithoutCancel(tb.Context())
	var found []string
	pods, err := s.api.Pods(s.namespace).List(ctx, metav1.ListOptions{})
	require.NoError(tb, err)
	for _, pod := range pods.Items {
		if pod.Annotations[driver.LabelTransaction] == transaction {
			found = append(found, "pod "+pod.Name)
		}
	}
	secrets, err := s.api.Secrets(s.namespace).List(ctx, metav1.ListOptions{})
	require.NoError(tb, err)
	for _, secret := range secrets.Items {
		if secret.Annotations[driver.LabelTransaction] == transaction {
			found = append(found, "secret "+secret.Name)
		}
	}
	return found
}

func (s *site) Has(tb testing.TB, r driver.Resource) bool {
	tb.Helper()
	parts := strings.Split(r.ID, "/")
	pod, err := s.api.Pods(parts[0]).Get(context.WithoutCancel(tb.Context()), parts[1], metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(tb, err)
	if len(parts) == 2 {
		return true
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == parts[2] {
			return true
		}
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == parts[2] {
			return true
		}
	}
	return false
}

// Traces also searches the store of the cluster: no object may have data of a step.
func (s *site) Traces(tb testing.TB, text string) []string {
	tb.Helper()
	found := testbed.ProcessesWith("cmdline", text)
	for _, part := range []string{"etcd", "kubelet", "logs", "pods"} {
		for _, path := range testbed.FilesWith(tb, filepath.Join(filepath.Dir(s.Kubeconfig), part), text) {
			found = append(found, fmt.Sprint("file ", path))
		}
	}
	return found
}
