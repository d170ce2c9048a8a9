package endtoend_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

// Rule D7: in a namespace with the Pod Security level "restricted" the chart's delegate starts
// and runs stages whose steps reach each other. It names the features that are not available
// there.
func TestTheDelegateOfTheChartRunsStagesWithoutRoot(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	namespace := c.NewNamespace(t)
	out, err := c.Kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	require.NoError(t, err, out)
	require.Eventually(t, func() bool {
		out, err := c.Kubectl(t, "-n", namespace, "run", "probe", "--image", c.Image, "--dry-run=server")
		return err != nil && strings.Contains(out, "violates PodSecurity")
	}, time.Minute, 100*time.Millisecond)
	const image = "test.invalid/delegate-restricted:1"
	c.ImportProgram(t, image, "delegate", testbed.BuildStatic(t, "./examples/delegate"))
	m, url := managerFor(t, c)
	values := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(values, fmt.Appendf(nil, `
manager: {url: %q, accountID: %q}
token: {value: %q}
image: {delegate: %q, agent: %q}
stages: {restricted: true, runAs: "2000:3000"}
ledger: {claim: false}
settings: {POLL_INTERVAL_MILLISECS: 200}
`, url, account, secret, image, c.AgentImage(t)), 0o600))
	_, err = testbed.Helm(t, c.Kubeconfig, "install", "ci", chart, "--namespace", namespace, "--values", values)
	require.NoError(t, err)
	out, err = c.Kubectl(t, "-n", namespace, "rollout", "status", "statefulset/ci", "--timeout", "90s")
	if err != nil {
		logs, _ := c.Kubectl(t, "-n", namespace, "logs", "ci-0")
		events, _ := c.Kubectl(t, "-n", namespace, "get", "events")
		require.NoError(t, err, "%s\n%s\n%s", out, logs, events)
	}

	id := submitPods(t, m, nil,
		stage.Step{ID: "serve", Image: c.Image, Detach: true, Run: shell("echo hello > index.html; exec httpd -f -p 80")},
		stage.Step{ID: "test", Image: c.Image, OutputVars: []string{"GOT", "WHO"},
			Run: shell("WHO=$(id -u):$(id -g); until GOT=$(wget -qO- http://serve/index.html); do sleep 0.1; done")},
	)
	st, err := m.WaitStage(t.Context(), account, id)
	require.NoError(t, err)
	require.Equal(t, api.Success, st.Status, "%+v", st)
	require.Equal(t, []api.Output{
		{Key: "GOT", Value: "hello", Type: stage.OutputString}, {Key: "WHO", Value: "2000:3000", Type: stage.OutputString},
	}, st.Steps[1].Outputs)

	id = submitPods(t, m, nil, stage.Step{ID: "root", Image: c.Image, User: "0", Run: shell("echo RAN")})
	st, err = m.WaitStage(t.Context(), account, id)
	require.NoError(t, err)
	require.Equal(t, api.Failure, st.Status, "%+v", st)
	require.Contains(t, st.Steps[0].Error, `Pod Security level "restricted"`)
	out, err = c.Kubectl(t, "-n", namespace, "delete", "statefulset/ci", "--wait=false")
	require.NoError(t, err, out)
	out, err = c.Kubectl(t, "-n", namespace, "wait", "--for=delete", "pod/ci-0", "--timeout=90s")
	require.NoError(t, err, out)
	requireNoPods(t, c, namespace)
}
