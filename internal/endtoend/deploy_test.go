package endtoend_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

const chart = "../../deploy/chart"

// The manifests equal the chart's output, so tests of one hold for the other.
func TestTheManifestsAreTheOutputOfTheChart(t *testing.T) {
	t.Parallel()
	out, err := testbed.Helm(t, "", "template", "dlite", chart, "--namespace", "dlite", "--values", "../../deploy/kubernetes/values.yaml")
	require.NoError(t, err)
	have, err := os.ReadFile("../../deploy/kubernetes/dlite.yaml")
	require.NoError(t, err)
	require.Equal(t, out, string(have), "make manifests")
}

// The chart refuses values that cannot work and names the missing ones.
func TestTheChartNamesMissingAndInvalidValues(t *testing.T) {
	t.Parallel()
	all := map[string]string{"manager.url": "https://manager.example.com", "manager.accountID": "demo", "token.secret": "a-secret"}
	for missing, want := range map[string]string{
		"manager.url": "manager.url is the manager's address", "manager.accountID": "manager.accountID is the account's id",
		"token.secret": "token.secret names a Secret",
	} {
		args := []string{"template", "dlite", chart}
		for name, value := range all {
			if name != missing {
				args = append(args, "--set", name+"="+value)
			}
		}
		_, err := testbed.Helm(t, "", args...)
		require.ErrorContains(t, err, want)
	}
}

// The delegate may create Services only if the chart enables them.
func TestTheChartPermitsServicesOnlyIfTheyAreEnabled(t *testing.T) {
	t.Parallel()
	args := []string{"template", "dlite", chart, "--set", "manager.url=https://manager.example.com,manager.accountID=demo,token.secret=a-secret"}
	out, err := testbed.Helm(t, "", args...)
	require.NoError(t, err)
	require.NotContains(t, strings.ToLower(out), "services]")
	require.NotContains(t, out, "KUBERNETES_SERVICES")
	out, err = testbed.Helm(t, "", append(args, "--set", "stages.services=true")...)
	require.NoError(t, err)
	require.Contains(t, out, "resources: [services]\n    verbs: [create, get, list, delete]")
	require.Contains(t, out, `{name: KUBERNETES_SERVICES, value: "true"}`)
}

// The ScaledObject of KEDA asks the call of the manager for the stages of the delegates' tags, with a bearer token.
// The form is the documented one of the scaler "metrics-api"; KEDA itself is not part of this test.
func TestTheChartScalesWithKEDA(t *testing.T) {
	t.Parallel()
	args := []string{"template", "dlite", chart, "--set", "manager.url=https://manager.example.com/,manager.accountID=demo,token.secret=a-secret",
		"--set", `tags=linux\,big gpu,autoscale.kind=keda`}
	_, err := testbed.Helm(t, "", args...)
	require.ErrorContains(t, err, "autoscale.tokenSecret names a Secret")
	out, err := testbed.Helm(t, "", append(args, "--set", "autoscale.tokenSecret=reader,autoscale.min=0,maxStages=7")...)
	require.NoError(t, err)
	for _, want := range []string{
		`url: "https://manager.example.com/api/demand?accountId=demo&infra=kubernetes&tags=linux%2Cbig+gpu"`, "valueLocation: value",
		`targetValue: "7"`, "authMode: bearer", "{parameter: token, name: reader, key: token}", "minReplicaCount: 0",
	} {
		require.Contains(t, out, want)
	}
	require.NotContains(t, out, "replicas:", "two of them would decide")
	for set, want := range map[string]string{
		"autoscale.kind=other": "it must be hpa, keda or empty", "autoscale.kind=hpa,maxStages=0": "autoscale.stages is the number of stages",
	} {
		_, err := testbed.Helm(t, "", append(args, "--set", set)...)
		require.ErrorContains(t, err, want)
	}
}

// Rule D7: the delegate that the chart installs runs stages in another namespace, with only
// the permissions of the chart. At its end it finishes running stages and leaves no resource.
func TestTheDelegateOfTheChartRunsStages(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	own, stages := c.NewNamespace(t), c.NewNamespace(t)
	m := installChart(t, c, own, stages)
	kubectl := func(args ...string) string {
		out, err := c.Kubectl(t, args...)
		require.NoError(t, err, out)
		return out
	}

	first := submitPods(t, m, []string{"cluster"},
		stage.Step{ID: "build", Image: c.Image, Run: shell("echo built > file; echo $HOSTNAME; id -u")},
		stage.Step{ID: "serve", Image: c.Image, Detach: true, Run: shell("echo hello > index.html; exec httpd -f -p 8080")},
		stage.Step{ID: "test", Image: c.Image, OutputVars: []string{"GOT"},
			Run: shell("cat file; until GOT=$(wget -qO- http://serve:8080/index.html); do sleep 0.1; done")},
	)
	st, err := m.WaitStage(t.Context(), account, first)
	require.NoError(t, err)
	require.Equal(t, api.Success, st.Status, "%+v", st)
	require.Equal(t, []api.Output{{Key: "GOT", Value: "hello", Type: stage.OutputString}}, st.Steps[2].Outputs)
	requireNoPods(t, c, stages)

	// The second stage runs when the delegate is told to end.
	second := submitPods(t, m, nil,
		stage.Step{ID: "long", Image: c.Image, Run: shell("sleep 8; echo done")}, stage.Step{ID: "more", Image: c.Image, Run: shell("echo more")})
	require.Eventually(t, func() bool {
		return strings.Contains(kubectl("-n", stages, "get", "pods", "-o", "json"), `"started": true`)
	},
		time.Minute, 100*time.Millisecond)
	require.Contains(t, kubectl("-n", stages, "get", "pods", "-o", "json"), `"team": "builders"`)
	// Without scaling down first, an uninstall would lose the running stages.
	kubectl("-n", own, "scale", "statefulset/ci", "--replicas=0")
	st, err = m.WaitStage(t.Context(), account, second)
	require.NoError(t, err)
	require.Equal(t, api.Success, st.Status, "%+v", st)
	kubectl("-n", own, "wait", "--for=delete", "pod/ci-0", "--timeout=90s")
	requireNoPods(t, c, stages)
	uninstallChart(t, c, own, stages)
}

// Rule T2: a delegate that is uninstalled during a stage loses the permission to remove the
// stage's resources. The cluster removes them, and the delegate does not wait for that.
func TestAnUninstalledDelegateLeavesNothing(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	own, stages := c.NewNamespace(t), c.NewNamespace(t)
	m := installChart(t, c, own, stages)
	id := submitPods(t, m, nil, stage.Step{ID: "long", Image: c.Image, Run: shell("sleep 600")})
	require.Eventually(t, func() bool {
		out, err := c.Kubectl(t, "-n", stages, "get", "pods", "-o", "json")
		return err == nil && strings.Contains(out, `"started": true`)
	}, time.Minute, 100*time.Millisecond)
	uninstallChart(t, c, own, stages)
	out, err := c.Kubectl(t, "-n", stages, "wait", "--for=delete", "pods", "--all", "--timeout=90s")
	require.NoError(t, err, out)
	requireNoPods(t, c, stages)
	st, err := m.WaitStage(t.Context(), account, id)
	require.NoError(t, err)
	require.Equal(t, api.Failure, st.Status, "%+v", st)
	out, err = c.Kubectl(t, "-n", own, "wait", "--for=delete", "pod/ci-0", "--timeout=100s")
	require.NoError(t, err, out)
}

// installChart installs a delegate as the release ci, and returns its manager.
func installChart(t *testing.T, c *testbed.Cluster, own, stages string) *manager.Manager {
	t.Helper()
	const image = "test.invalid/delegate:1"
	c.ImportProgram(t, image, "delegate", testbed.BuildStatic(t, "./examples/delegate"))
	m, url := managerFor(t, c)
	values := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(values, fmt.Appendf(nil, `
manager: {url: %q, accountID: %q}
token: {value: %q}
tags: "linux,cluster"
image: {delegate: %q, agent: %q}
stages:
  namespace: %s
  podTemplate:
    metadata: {annotations: {team: builders}}
ledger: {claim: false}
drainSeconds: 120
settings: {POLL_INTERVAL_MILLISECS: 200}
`, url, account, secret, image, c.AgentImage(t), stages), 0o600))
	_, err := testbed.Helm(t, c.Kubeconfig, "install", "ci", chart, "--namespace", own, "--values", values)
	require.NoError(t, err)
	// The delegate is ready when the manager has its registration.
	out, err := c.Kubectl(t, "-n", own, "rollout", "status", "statefulset/ci", "--timeout", "90s")
	if err != nil {
		logs, _ := c.Kubectl(t, "-n", own, "logs", "ci-0")
		events, _ := c.Kubectl(t, "-n", own, "get", "events")
		require.NoError(t, err, "%s\n%s\n%s", out, logs, events)
	}
	return m
}

// uninstallChart uninstalls the release and fails unless its objects are gone afterwards.
func uninstallChart(t *testing.T, c *testbed.Cluster, own, stages string) {
	t.Helper()
	_, err := testbed.Helm(t, c.Kubeconfig, "uninstall", "ci", "--namespace", own)
	require.NoError(t, err)
	for namespace, kinds := range map[string]string{
		stages: "secrets,configmaps,roles,rolebindings", own: "secrets,configmaps,serviceaccounts,statefulsets",
	} {
		out, err := c.Kubectl(t, "-n", namespace, "get", kinds, "-o", "name")
		require.NoError(t, err, out)
		require.NotContains(t, out, "/ci")
	}
}

// managerFor starts a manager that pods can reach.
func managerFor(t *testing.T, c *testbed.Cluster) (*manager.Manager, string) {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(c.HostIP, "0"))
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(m)
	_ = srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		srv.Close()
	})
	return m, srv.URL
}

func shell(script string) stage.Run {
	return stage.Run{Entrypoint: []string{"sh", "-ec"}, Command: []string{script}}
}

// submitPods submits a stage that runs in a pod.
func submitPods(t *testing.T, m *manager.Manager, selectors []string, steps ...stage.Step) string {
	t.Helper()
	req := api.StageRequest{Infra: "kubernetes", Selectors: selectors}
	for _, s := range steps {
		data, err := json.Marshal(s)
		require.NoError(t, err)
		req.Steps = append(req.Steps, api.StepRequest{ID: s.ID, Data: data})
	}
	st, err := m.SubmitStage(t.Context(), account, req)
	require.NoError(t, err)
	return st.ID
}

// requireNoPods fails unless the pods and Secrets of the stages are gone.
func requireNoPods(t *testing.T, c *testbed.Cluster, namespace string) {
	t.Helper()
	out, err := c.Kubectl(t, "-n", namespace, "get", "pods,secrets", "-o", "name")
	require.NoError(t, err, out)
	require.NotContains(t, out, "dlite-")
}
