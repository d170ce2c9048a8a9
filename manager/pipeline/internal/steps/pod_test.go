package steps_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
	"github.com/delegate-io/dlite/task/stage"
)

func TestSettingsOfPodsTravelToTheDelegate(t *testing.T) {
	t.Parallel()
	open := func(text string) (stage.InitRequest, steps.Target, error) {
		request, target, err := newTable(t).Stage(steps.Info{Stage: "s"}, &engine.Opening{Infrastructure: &engine.Infrastructure{Type: "KubernetesDirect", Spec: spec(t, text)}})
		var init stage.InitRequest
		if err == nil {
			require.NoError(t, json.Unmarshal(request.Init, &init))
		}
		return init, target, err
	}
	init, target, err := open(`{"namespace":"n","serviceAccountName":"builder","automountServiceAccountToken":"true","labels":{"team":"web"},"annotations":{},
		"initTimeout":"1h 30m","volumes":[{"mountPath":"/etc/ci","type":"ConfigMap","spec":{"name":"ci","optional":"true"}},{"mountPath":"/var/key","type":"Secret","spec":{"name":"key"}},
		{"mountPath":"/tmp/x","type":"EmptyDir"}],"podSpecOverlay":"spec:\n  dnsPolicy: None\n  topologySpreadConstraints: [{maxSkew: 1}]\n",
		"tolerations":[{"key":"ci","operator":"Equal","value":"true","effect":"NoExecute","tolerationSeconds":"60"}],"hostNames":["db.test"],"runAsUser":1000,"imagePullPolicy":"Always",
		"containerSecurityContext":{"privileged":false,"runAsUser":"7","readOnlyRootFilesystem":"true","capabilities":{"add":["NET_ADMIN"],"drop":[]}},"priorityClassName":""}`)
	require.NoError(t, err)
	assert.JSONEq(t, `{"namespace":"n","initTimeoutSeconds":5400,"podSpecOverlay":{"dnsPolicy":"None","topologySpreadConstraints":[{"maxSkew":1}]},
		"volumes":[{"name":"volume-0","configMap":{"name":"ci","optional":true}},{"name":"volume-1","secret":{"secretName":"key"}}],"serviceAccountName":"builder","automountServiceAccountToken":true,"labels":{"team":"web"},
		"tolerations":[{"key":"ci","operator":"Equal","value":"true","effect":"NoExecute","tolerationSeconds":60}],"hostNames":["db.test"],
		"containerSecurityContext":{"privileged":false,"runAsUser":7,"readOnlyRootFilesystem":true,"capabilities":{"add":["NET_ADMIN"]}}}`, init.Network.PodSettings())
	require.Len(t, init.Volumes, 1)
	assert.Equal(t, "volume-2", init.Volumes[0].Temp.Name)
	step := stepOf(t, target, "Run", `{"image":"tool:1","command":"make"}`)
	assert.Equal(t, []*stage.VolumeMount{{Name: "volume-0", Path: "/etc/ci"}, {Name: "volume-1", Path: "/var/key"}, {Name: "volume-2", Path: "/tmp/x"}, {Name: stage.WorkspaceVolume, Path: "/harness"}}, step.Volumes)
	assert.Equal(t, []string{"1000", "Always"}, []string{step.User, step.Pull})
	step = stepOf(t, target, "Run", `{"image":"tool:1","command":"make","runAsUser":5,"imagePullPolicy":"Never"}`)
	assert.Equal(t, []string{"5", "Never"}, []string{step.User, step.Pull})

	init, _, err = open(`{"namespace":"","automountServiceAccountToken":"","podSpecOverlay":"","initTimeout":""}`)
	require.NoError(t, err)
	assert.Empty(t, init.Network.PodSettings())
	for text, want := range map[string]string{
		`{"tolerations":[{"kee":"x"}]}`:                                              "infrastructure.spec.tolerations[0].kee is not supported here",
		`{"containerSecurityContext":{"seccomp":"x"}}`:                               "infrastructure.spec.containerSecurityContext.seccomp is not supported here",
		`{"initTimeout":"soon"}`:                                                     `infrastructure.spec.initTimeout "soon": must be a time such as`,
		`{"podSpecOverlay":"[a"}`:                                                    "infrastructure.spec.podSpecOverlay is not YAML",
		`{"podSpecOverlay":"a"}`:                                                     "infrastructure.spec.podSpecOverlay must be a map",
		`{"podSpecOverlay":"{metadata: {}, spec: {}}"}`:                              "infrastructure.spec.podSpecOverlay.metadata is not supported here",
		`{"volumes":[{"mountPath":"/a","type":"Secret","spec":{"secretName":"x"}}]}`: "infrastructure.spec.volumes[0].spec.name is required",
		`{"volumes":[{"mountPath":"/a","type":"Lost"}]}`:                             `infrastructure.spec.volumes[0].type is "Lost": use EmptyDir`,
		`{"automountServiceAccountToken":"perhaps"}`:                                 "infrastructure.spec.automountServiceAccountToken must be true or false",
		`{"containerSecurityContext":{"runAsUser":"x"}}`:                             "infrastructure.spec.containerSecurityContext.runAsUser must be a whole number",
	} {
		_, _, err := open(text)
		require.ErrorContains(t, err, want)
		assert.Equal(t, 1, strings.Count(err.Error(), "infrastructure.spec."), "an error is reported once: %v", err)
	}
}

// The connector of a cluster names the delegates of the cluster. It has no meaning for another driver.
func TestTheConnectorOfAClusterChoosesItsDelegates(t *testing.T) {
	t.Parallel()
	pods := &engine.Opening{Infrastructure: &engine.Infrastructure{Type: "KubernetesDirect", Spec: spec(t, `{"connectorRef":"account.other"}`)}}
	_, _, err := newTable(t).Stage(steps.Info{Stage: "s"}, pods)
	require.ErrorContains(t, err, `names the connector "account.other", which the settings of the pipeline service do not have: add connectors: {other: {kind: kubernetes}}`)
	missing := map[string]string{}
	_, _, err = newTable(t).Assuming(missing).Stage(steps.Info{Stage: "s"}, pods)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"other": "kubernetes"}, missing)
	local, err := steps.New(steps.Config{Infrastructure: map[string]steps.Infrastructure{"KubernetesDirect": {Driver: "local"}}})
	require.NoError(t, err)
	_, _, err = local.Stage(steps.Info{Stage: "s"}, pods)
	require.NoError(t, err)
	for want, c := range map[string]steps.Connector{
		"takes only selectors":               {Kind: "kubernetes", URL: "https://cluster.example"},
		"connectors.c.selectors is only for": {Kind: "git", URL: "https://git.example", Selectors: []string{"a"}},
	} {
		_, err := steps.New(steps.Config{Connectors: map[string]steps.Connector{"c": c}})
		require.ErrorContains(t, err, want)
	}
}
