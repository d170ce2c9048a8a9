package steps_test

import (
	"encoding/json"
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
		"tolerations":[{"key":"ci","operator":"Equal","value":"true","effect":"NoExecute","tolerationSeconds":"60"}],"hostNames":["db.test"],"runAsUser":1000,"imagePullPolicy":"Always",
		"containerSecurityContext":{"privileged":false,"runAsUser":"7","readOnlyRootFilesystem":"true","capabilities":{"add":["NET_ADMIN"],"drop":[]}},"priorityClassName":""}`)
	require.NoError(t, err)
	assert.JSONEq(t, `{"serviceAccountName":"builder","automountServiceAccountToken":true,"labels":{"team":"web"},
		"tolerations":[{"key":"ci","operator":"Equal","value":"true","effect":"NoExecute","tolerationSeconds":60}],"hostNames":["db.test"],
		"containerSecurityContext":{"privileged":false,"runAsUser":7,"readOnlyRootFilesystem":true,"capabilities":{"add":["NET_ADMIN"]}}}`, init.Network.PodSettings())
	step := stepOf(t, target, "Run", `{"image":"tool:1","command":"make"}`)
	assert.Equal(t, []string{"1000", "Always"}, []string{step.User, step.Pull})
	step = stepOf(t, target, "Run", `{"image":"tool:1","command":"make","runAsUser":5,"imagePullPolicy":"Never"}`)
	assert.Equal(t, []string{"5", "Never"}, []string{step.User, step.Pull})

	init, _, err = open(`{"namespace":"n","automountServiceAccountToken":""}`)
	require.NoError(t, err)
	assert.Empty(t, init.Network.PodSettings())
	for text, want := range map[string]string{
		`{"tolerations":[{"kee":"x"}]}`:                  "infrastructure.spec.tolerations[0].kee is not supported here",
		`{"containerSecurityContext":{"seccomp":"x"}}`:   "infrastructure.spec.containerSecurityContext.seccomp is not supported here",
		`{"automountServiceAccountToken":"perhaps"}`:     "infrastructure.spec.automountServiceAccountToken must be true or false",
		`{"containerSecurityContext":{"runAsUser":"x"}}`: "infrastructure.spec.containerSecurityContext.runAsUser must be a whole number",
	} {
		_, _, err := open(text)
		require.ErrorContains(t, err, want)
	}
}
