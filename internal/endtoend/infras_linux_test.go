package endtoend_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// everywhere is a stage with the features that stages commonly use.
const everywhere = `{
	"infra": "%s",
	"init": {
		"envs": {"COLOUR": "green"},
		"volumes": [{"temp": {"id": "cache", "name": "cache"}}],
		"files": [{"path": "given/words", "data": "from the init", "mode": 420}]
	},
	"steps": [
		{"id": "build", "data": {%s"run": {"entrypoint": ["sh", "-ec"], "commands": [
			"cat given/words; echo; mkdir out; echo \"$COLOUR thing\" > out/thing; echo N=41 >> $DRONE_ENV; seq 1 5000"]}}},
		{"id": "service", "data": {%s"detach": true, "ready": {"command": ["test", "-e", "up"]},
			"run": {"entrypoint": ["sh", "-ec"], "commands": ["sleep 0.3; touch up; echo the service is up; while :; do sleep 1; done"]}}},
		{"id": "test", "data": {%s"environment": {"TOKEN": "visibly-fake-token"}, "secrets": ["visibly-fake-token"],
			"outputs": [{"key": "sum", "value": "SUM", "type": "STRING"}],
			"test_report": {"kind": "Junit", "junit": {"paths": ["out/*.xml"]}},
			"run": {"entrypoint": ["sh", "-ec"], "commands": [
			"test -e up; cat out/thing; echo \"logged in with $TOKEN\"; SUM=$((N + 1)); echo '<testsuite name=\"s\"><testcase name=\"t\"/></testsuite>' > out/r.xml; echo artifact > $PLUGIN_ARTIFACT_FILE"]}}},
		{"id": "fail", "data": {%s"run": {"entrypoint": ["sh", "-c"], "commands": ["sleep 600 & exit 3"]}}},
		{"id": "after", "run_on": "always", "data": {%s"run": {"entrypoint": ["sh", "-c"], "commands": ["echo over"]}}}
	]
}`

// Rules X2, D1, D2, D6, D7: one delegate with all drivers, configured by a config.env, runs
// the same stage at the same time on this machine, in containers, on a virtual machine and in
// a pod. All end in the same way.
func TestTheSameStageOnEveryInfrastructure(t *testing.T) {
	t.Parallel()
	engine, guest, cluster := testbed.Docker(t), testbed.VM(t), testbed.Kubernetes(t)
	namespace := cluster.NewNamespace(t)
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(pools, fmt.Appendf(nil, `pools:
  - name: linux
    min: 1
    max: 2
    qemu: {binary: %q, kernel: %q, initrd: %q, append: %q, memory_mb: 192, snapshot: true, accel: tcg}
`, guest.QEMU, guest.Kernel, guest.Initrd, guest.Append), 0o600))
	p := startPrograms(t, "DRIVERS=local,vm,kubernetes", "VM_POOLS="+pools,
		"KUBECONFIG="+cluster.Kubeconfig, "KUBERNETES_NAMESPACE="+namespace,
		"KUBERNETES_AGENT_IMAGE="+cluster.AgentImage(t), "KUBERNETES_STEP_IMAGE="+cluster.Image)
	t.Run("stages", func(t *testing.T) {
		for name, infra := range map[string][2]string{
			"host": {"local"}, "docker": {"local", engine.Image}, "machine": {"vm"}, "pod": {"kubernetes"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				image := ""
				if infra[1] != "" {
					image = fmt.Sprintf(`"image": %q, "pull": "Never", `, infra[1])
				}
				id := name + "-" + rand.Text()
				engine.LeavesNothing(t, id)
				checkEverywhere(t, p, p.run(t, id, fmt.Sprintf(everywhere, infra[0], image, image, image, image, image)))
			})
		}
	})
	pods, err := cluster.Kubectl(t, "get", "pods,secrets", "-n", namespace, "-o", "name")
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(pods), "left in the cluster")
}

func checkEverywhere(t *testing.T, p *programs, st api.Stage) {
	t.Helper()
	require.Equal(t, api.Success, st.Init.Status, st.Init.Error)
	logs := map[string]string{}
	for _, s := range st.Steps {
		if s.LogKey != "" {
			logs[s.ID] = p.log(t, s.LogKey)
		}
	}
	assert.Equal(t, api.Failure, st.Status)
	assert.Equal(t, `step "fail": exit code 3`, st.Error)
	var ended []string
	for _, s := range st.Steps {
		ended = append(ended, s.ID+" "+string(s.Status))
	}
	require.Equal(t, []string{"build SUCCESS", "service SUCCESS", "test SUCCESS", "fail FAILURE", "after SUCCESS"}, ended, "%v", logs)
	assert.Equal(t, api.Success, st.Cleanup.Status, st.Cleanup.Error)
	test := st.Steps[2]
	assert.Equal(t, "42", test.OutputVars["sum"])
	assert.Equal(t, "artifact\n", string(test.Artifact))
	require.NotNil(t, test.Tests)
	assert.Equal(t, 1, test.Tests.Passed)

	var numbers strings.Builder
	for i := 1; i <= 5000; i++ {
		fmt.Fprintln(&numbers, i)
	}
	assert.True(t, strings.HasSuffix(logs["build"], "from the init\n"+numbers.String()), "the log of build: %.200s ...", logs["build"])
	assert.Contains(t, logs["service"], "the service is up")
	assert.Contains(t, logs["test"], "green thing\n")
	assert.Contains(t, logs["test"], "logged in with")
	assert.NotContains(t, logs["test"], "visibly-fake-token", "rule S3")
	assert.Equal(t, "over\n", logs["after"])
}
