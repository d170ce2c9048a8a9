package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Helm runs helm and returns its standard output. The kubeconfig selects the cluster, see
// [Cluster.Kubeconfig]; empty means none. Helm is built from its modules, like the programs of
// [Kubernetes].
func Helm(tb testing.TB, kubeconfig string, args ...string) (string, error) {
	tb.Helper()
	program, err := buildProgram("helm", "helm.sh/helm/v3/cmd/helm",
		"-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=33")
	if err != nil {
		Unavailable(tb, "helm", "it cannot be built: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	home := tb.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		err = fmt.Errorf("helm %s: %w: %s", args[0], err, e.Stderr)
	}
	return string(out), err
}
