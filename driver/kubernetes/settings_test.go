package kubernetes

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

const wishes = `{"serviceAccountName":"builder","automountServiceAccountToken":true,"priorityClassName":"high","labels":{"team":"web","app.kubernetes.io/managed-by":"x"},
	"annotations":{"note":"n"},"tolerations":[{"key":"ci-gpu","operator":"Exists"},{"key":"prod","operator":"Exists"}],
	"containerSecurityContext":{"readOnlyRootFilesystem":true,"runAsNonRoot":false,"capabilities":{"add":["NET_ADMIN"]}},"hostNames":["db.test"]}`

func podWith(t *testing.T, cfg Config, settings string) (*corev1.Pod, []string) {
	t.Helper()
	cfg.AgentImage = "agent"
	d := &Driver{cfg: cfg}
	step := &stage.Step{ID: "a", Image: "tool"}
	draft := &draft{name: "pod", env: &driver.Environment{ID: "t", Network: stage.Network{}.WithPodSettings(settings), Steps: []*stage.Step{step}}}
	pod, err := d.makePod(draft)
	require.NoError(t, err)
	return pod, draft.notes
}

func TestAStageChoosesTheSettingsOfItsPodThatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	pod, notes := podWith(t, Config{}, wishes)
	assert.Len(t, notes, 9, "a line for each setting, label, annotation and toleration")
	assert.Contains(t, notes[0], "The delegate does not allow the setting annotations: note of the stage.")
	assert.Empty(t, pod.Spec.ServiceAccountName)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.Empty(t, pod.Spec.PriorityClassName)
	assert.Empty(t, pod.Spec.Tolerations)
	assert.NotContains(t, pod.Labels, "team")
	assert.Equal(t, &corev1.SecurityContext{}, pod.Spec.Containers[1].SecurityContext)
	assert.Equal(t, []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"db.test"}}}, pod.Spec.HostAliases, "names of the pod harm nothing")

	pod, notes = podWith(t, Config{StageSettings: []string{
		"serviceAccountName=build*", "automountServiceAccountToken", "priorityClassName", "labels=team", "annotations", "tolerations=ci-*", "containerSecurityContext",
	}}, wishes)
	assert.Len(t, notes, 2, notes)
	assert.Equal(t, "builder", pod.Spec.ServiceAccountName)
	assert.True(t, *pod.Spec.AutomountServiceAccountToken)
	assert.Equal(t, "high", pod.Spec.PriorityClassName)
	assert.Equal(t, []corev1.Toleration{{Key: "ci-gpu", Operator: "Exists"}}, pod.Spec.Tolerations)
	assert.Equal(t, []string{"web", managed}, []string{pod.Labels["team"], pod.Labels[labelManaged]})
	assert.Equal(t, "n", pod.Annotations["note"])
	sc := pod.Spec.Containers[1].SecurityContext
	assert.True(t, *sc.ReadOnlyRootFilesystem)
	assert.Equal(t, []corev1.Capability{"NET_ADMIN"}, sc.Capabilities.Add)
	assert.Nil(t, pod.Spec.Containers[0].SecurityContext, "the hub is not the stage's")
}

func TestTheConfigurationComesBeforeTheSettingsOfAStage(t *testing.T) {
	t.Parallel()
	yes, uid := true, int64(7)
	all := append([]string(nil), stageSettings...)
	pod, notes := podWith(t, Config{
		StageSettings: all, ServiceAccount: "own", PriorityClass: "low", Labels: map[string]string{"team": "ci", labelManaged: "z"},
		ContainerSecurityContext: &corev1.SecurityContext{RunAsNonRoot: &yes, RunAsUser: &uid},
	}, wishes)
	assert.Empty(t, notes)
	assert.Equal(t, []string{"own", "low", "ci"}, []string{pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName, pod.Labels["team"]})
	sc := pod.Spec.Containers[1].SecurityContext
	assert.True(t, *sc.RunAsNonRoot)
	assert.Equal(t, uid, *sc.RunAsUser)

	cfg := Config{AgentImage: "agent", StageSettings: all, Restricted: true}
	require.NoError(t, cfg.restrict())
	pod, _ = podWith(t, cfg, `{"containerSecurityContext":{"privileged":true,"runAsNonRoot":false,"runAsUser":0,"allowPrivilegeEscalation":true,"capabilities":{"add":["SYS_ADMIN"]}}}`)
	sc = pod.Spec.Containers[1].SecurityContext
	assert.Nil(t, sc.Privileged)
	assert.True(t, *sc.RunAsNonRoot)
	assert.False(t, *sc.AllowPrivilegeEscalation)
	assert.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, sc.Capabilities)
}

const needs = `{"namespace":"team-a","initTimeoutSeconds":1800,"podSpecOverlay":{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}],
	"affinity":{"podAffinity":{}}},"volumes":[{"name":"volume-0","configMap":{"name":"ci-certs"}},{"name":"volume-1","secret":{"secretName":"ci-key","optional":true}}]}`

// Without its namespace, its volumes or its overlay a stage would do something else, so it fails.
func TestAStageFailsWithoutTheSettingsThatItNeeds(t *testing.T) {
	t.Parallel()
	var allowed []string
	for _, missing := range []string{"namespace: team-a", "configMapVolumes: ci-certs", "secretVolumes: ci-key", "podSpecOverlay: affinity", "podSpecOverlay: topologySpreadConstraints"} {
		d := &Driver{cfg: Config{AgentImage: "agent", Namespace: "ci", StageSettings: allowed, StartTimeout: time.Minute}}
		_, err := d.makePod(&draft{name: "pod", env: &driver.Environment{ID: "t", Network: stage.Network{}.WithPodSettings(needs)}})
		require.ErrorContains(t, err, "the delegate does not allow the setting "+missing+" of the stage: its operator can allow it in KUBERNETES_STAGE_SETTINGS")
		var kind interface{ FailureKind() string }
		require.ErrorAs(t, err, &kind)
		assert.Equal(t, stage.FailureRefused, kind.FailureKind())
		setting, value, _ := strings.Cut(missing, ": ")
		allowed = append(allowed, setting+"="+value)
	}
	cfg := Config{AgentImage: "agent", Namespace: "ci", StageSettings: allowed, StartTimeout: time.Minute}
	pod, notes := podWith(t, cfg, needs)
	assert.Equal(t, []string{"The delegate does not allow the setting initTimeout: 30m0s of the stage. Its operator can allow it in KUBERNETES_STAGE_SETTINGS."}, notes)
	assert.Equal(t, "team-a", pod.Namespace)
	assert.NotNil(t, pod.Spec.Affinity.PodAffinity)
	assert.Len(t, pod.Spec.TopologySpreadConstraints, 1)
	assert.Equal(t, []string{"ci", "team-a"}, cfg.namespaces())

	cfg.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	pod, _ = podWith(t, cfg, needs)
	assert.Nil(t, pod.Spec.Affinity.PodAffinity, "the configuration has precedence")
	pod, notes = podWith(t, Config{Namespace: "ci", StartTimeout: time.Minute}, `{"namespace":"ci","initTimeoutSeconds":60}`)
	assert.Empty(t, notes, "the delegate's own namespace and a shorter time need no permission")
	assert.Equal(t, "ci", pod.Namespace)
}

func TestWrongSettingsOfAPodAreRefused(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		`{"hostNetwork":true}`:                               "unknown field",
		`{"labels":{"no label":"x"}}`:                        `labels: "no label"`,
		`{"labels":{"a":"no value"}}`:                        `labels: "a"`,
		`{"hostNames":["A B"]}`:                              `hostNames: "A B"`,
		`[`:                                                  "the settings of the pod",
		`{"namespace":"a/b"}`:                                `namespace: "a/b"`,
		`{"initTimeoutSeconds":-1}`:                          "initTimeoutSeconds: -1",
		`{"podSpecOverlay":{"hostNetwork":true}}`:            "podSpecOverlay: hostNetwork is not one of the fields affinity,",
		`{"podSpecOverlay":{"volumes":[]}}`:                  "use volumes of the infrastructure",
		`{"podSpecOverlay":{"affinity":{"x":1}}}`:            "podSpecOverlay: json: unknown field",
		`{"podSpecOverlay":[]}`:                              "podSpecOverlay: json",
		`{"volumes":[{"name":"a","hostPath":{"path":"/"}}]}`: "volumes[0]: it must have a name",
		`{"volumes":[{"name":"a","configMap":{"name":"b"},"hostPath":{"path":"/"}}]}`:        "volumes[0]: it must have a name",
		`{"volumes":[{"name":"a","configMap":{"name":"b"},"secret":{"secretName":"c"}}]}`:    "volumes[0]: it must have a name",
		`{"volumes":[{"name":"a","secret":{}}]}`:                                             "volumes[0]: it must have a name",
		`{"volumes":[{"name":"a","secret":{"secretName":"` + recorded.NewName("x") + `"}}]}`: "belongs to another stage",
	} {
		_, err := readPodSettings(stage.Network{}.WithPodSettings(settings))
		require.ErrorContains(t, err, want, settings)
	}
	d := &Driver{cfg: Config{AgentImage: "agent", StageSettings: []string{"annotations"}}}
	_, err := d.makePod(&draft{name: "pod", env: &driver.Environment{ID: "t", Network: stage.Network{}.WithPodSettings(`{"annotations":{"io.dlite.steps":"{}"}}`)}})
	require.ErrorContains(t, err, "io.dlite.steps belongs to the driver")
	for _, entry := range []string{"hostNetwork", "labels=[", "", "namespace", "namespace=ci-*"} {
		cfg := Config{AgentImage: "agent", StageSettings: []string{entry}, Namespace: "n", Kubeconfig: "/nonexistent"}
		require.Error(t, cfg.complete(), entry)
	}
}
