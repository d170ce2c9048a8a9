package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// added returns the names of the containers that were added to the pod.
func (tx *transaction) added(t *testing.T) string {
	t.Helper()
	return tx.p.kubectl(t, "get", "pod", tx.pod(t), "-o", "jsonpath={.spec.ephemeralContainers[*].name}")
}

// Rule D7: each announced step has a container already, and announced steps run at the same
// time.
func TestAnnouncedStepsNeedNoNewContainer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.sh("a", "touch a; while [ ! -e b ]; do sleep 0.05; done; echo met; echo $$ > /left-behind")
	b := p.sh("b", "touch b; while [ ! -e a ]; do sleep 0.05; done; ls /left-behind; echo met")
	tx := p.begin(t, p.driver(t), announce(a, b))
	outs, done := []*drivertest.Output{drivertest.NewOutput(), drivertest.NewOutput()}, make(chan error, 2)
	for i, step := range []stage.Step{a, b} {
		go func() {
			_, err := tx.execute(t, step, outs[i])
			done <- err
		}()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	assert.Equal(t, "met\n", outs[0].String())
	assert.Contains(t, outs[1].String(), "met\n")
	assert.Empty(t, tx.added(t))
	// For a second step of the same id, no container waits.
	again := p.sh("a", "cat /left-behind 2>/dev/null || echo fresh")
	assert.Equal(t, "fresh\n", tx.run(t, again))
	assert.Contains(t, tx.added(t), "s-a-")
}

// Rule D7: a user name is resolved in the image of the step, with its groups and its home
// directory. A name that the image does not have fails the step, and the error names it.
func TestAUserNameIsResolvedInTheImage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const inspect = "id -u; id -g; echo $HOME; touch mine && stat -c %u:%g mine"
	announced := p.sh("announced", inspect)
	announced.User = "builder"
	tx := p.begin(t, p.driver(t), announce(announced))
	assert.Equal(t, "1000\n1000\n/tmp\n1000:1000\n", tx.run(t, announced))
	for user, want := range map[string]string{
		"builder":         "1000\n1000\n/tmp\n1000:1000\n",
		"builder:builder": "1000\n1000\n/tmp\n1000:1000\n",
		"builder:root":    "1000\n0\n/tmp\n1000:0\n",
		"1000:builder":    "1000\n1000\n/tmp\n1000:1000\n",
		"root":            "0\n0\n/root\n0:0\n",
	} {
		step := p.sh("as "+user, "rm -f mine; "+inspect)
		step.User = user
		assert.Equal(t, want, tx.run(t, step), user)
	}
	for user, want := range map[string]string{"nobody": `user "nobody" is not known`, "builder:nogroup": `group "nogroup" is not known`} {
		step := p.sh("as "+user, "echo never")
		step.User = user
		out := drivertest.NewOutput()
		_, err := tx.execute(t, step, out)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, out.String(), "never")
	}
	// Another image has other users.
	step := p.sh("as nobody", "id -un; id -gn; echo $HOME; pwd")
	step.Image, step.User = p.Debian(t, "git"), "nobody:nogroup"
	assert.Equal(t, "nobody\nnogroup\n/nonexistent\n/workspace\n", tx.run(t, step))
}

// A container that waits for a different step is not used.
func TestAStepThatDiffersFromItsAnnouncementGetsAnotherContainer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	step := p.sh("step", "id -u")
	tx := p.begin(t, p.driver(t), announce(step))
	step.User = "4321:4321"
	assert.Equal(t, "4321\n", tx.run(t, step))
	assert.Contains(t, tx.added(t), "s-step-")
}

// Rule D7: limits apply to the container of an announced step. For other steps the log
// reports that they do not apply.
func TestLimitsApplyToAnnouncedSteps(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	step := p.sh("step", "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true")
	step.MemLimit, step.CPUQuota, step.CPUPeriod = 64<<20, 50_000, 100_000
	tx := p.begin(t, p.driver(t), announce(step))
	assert.Equal(t, fmt.Sprintln((64+32)<<20), tx.run(t, step))
	assert.Contains(t, p.kubectl(t, "get", "pod", tx.pod(t), "-o", "jsonpath={.spec.containers[1].resources.limits}"), `"cpu":"500m"`)
	assert.Contains(t, tx.run(t, step), "limits of CPU and memory (the step was not announced to the init)")
}

// Rules S5, D7: no object of the cluster has a variable or a command of a step.
func TestNoObjectHasTheVariablesOfAStep(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const secret = "hunter2-not-in-any-object"
	step := p.sh("step", "echo "+secret+"; echo $TOKEN")
	step.Environment = map[string]string{"TOKEN": secret}
	tx := p.begin(t, p.driver(t), announce(step), func(env *driver.Environment) {
		env.Envs = map[string]string{"OTHER": secret}
		env.Files = []*stage.File{{Path: "f", Data: secret}}
	})
	assert.Equal(t, secret+"\n"+secret+"\n", tx.run(t, step))
	assert.NotContains(t, p.kubectl(t, "get", "pods,secrets,configmaps,events", "-o", "yaml"), secret)
}

// A step has the variables of its image, and not those of the agent.
func TestAStepHasTheVariablesOfItsImage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	out := tx.run(t, p.sh("step", "env"))
	assert.Contains(t, out, "PATH=/bin\n")
	assert.NotContains(t, out, "DLITE_POD_")
}

// A step uses the file system of its own container.
func TestFilesOfAStepMayBeAnywhereInItsContainer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	step := p.sh("step", "stat -c '%a' /etc/some/file; cat /etc/some/file")
	step.Files = []*stage.File{{Path: "/etc/some/file", Data: "content\n", Mode: 0o640}}
	assert.Equal(t, "640\ncontent\n", tx.run(t, step))
}

// Rule D7: an extra host resolves in the pod, and so does the node.
func TestExtraHostsResolve(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	step := p.sh("step", "cat /etc/hosts")
	step.ExtraHosts = []string{"one.test:192.0.2.7", "node.test:host-gateway"}
	out := tx.run(t, step)
	assert.Contains(t, out, "192.0.2.7\tone.test")
	assert.Regexp(t, `(?m)^[0-9.]+\tnode\.test`, out)
}

// Rule D7: the names of background steps still resolve when further containers start.
func TestNamesSurviveTheStartOfOtherContainers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	service := p.sh("db", "echo up; sleep 600")
	service.Detach = true
	tx := p.begin(t, p.driver(t))
	out := drivertest.NewOutput()
	res, err := tx.execute(t, service, out)
	require.NoError(t, err)
	require.True(t, res.Detached)
	for range 3 {
		assert.Contains(t, tx.run(t, p.sh("step", "cat /etc/hosts; env")), "127.0.0.1\tdb")
	}
	assert.Contains(t, tx.run(t, p.sh("step", "env")), "DLITE_SERVICE_DB_HOST=127.0.0.1\n")
}

// Rule D7: a Secret that the pod owns has the credentials of a registry.
func TestCredentialsOfARegistryAreASecretOfThePod(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	tx := p.begin(t, p.driver(t))
	step := p.sh("step", "echo ran")
	step.Auth = &stage.Auth{Address: "https://registry.test/", Username: "me", Password: "hunter2"}
	assert.Equal(t, "ran\n", tx.run(t, step))
	var secret struct {
		Type     string
		Metadata struct {
			OwnerReferences []struct{ Kind, Name string }
		}
		Data map[string][]byte
	}
	require.NoError(t, json.Unmarshal([]byte(p.kubectl(t, "get", "secret", tx.pod(t), "-o", "json")), &secret))
	assert.Equal(t, "kubernetes.io/dockerconfigjson", secret.Type)
	require.Len(t, secret.Metadata.OwnerReferences, 1)
	assert.Equal(t, tx.pod(t), secret.Metadata.OwnerReferences[0].Name)
	assert.JSONEq(t, `{"auths":{"registry.test":{"username":"me","password":"hunter2"}}}`, string(secret.Data[".dockerconfigjson"]))
	// Another step adds a second registry.
	step.Auth = &stage.Auth{Address: "other.test", Username: "me", Password: "hunter3"}
	tx.run(t, step)
	require.NoError(t, json.Unmarshal([]byte(p.kubectl(t, "get", "secret", tx.pod(t), "-o", "json")), &secret))
	assert.Contains(t, string(secret.Data[".dockerconfigjson"]), "hunter2")
	assert.Contains(t, string(secret.Data[".dockerconfigjson"]), "hunter3")
	tx.cleanup(t)
	assert.NotContains(t, p.kubectl(t, "get", "secrets", "-o", "name"), tx.pod(t))
}

// Rule D7: the pod has the additions of the template.
func TestATemplateIsMergedIntoThePod(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := p.driver(t, func(c *kubernetes.Config) {
		c.PodTemplate = []byte("metadata: {labels: {team: blue}}\nspec:\n  containers:\n  - {name: hub, resources: {requests: {memory: 20Mi}}}\n  hostname: given\n")
	})
	tx := p.begin(t, d)
	assert.Equal(t, "given\n", tx.run(t, p.sh("step", "hostname")))
	assert.Equal(t, "blue 20Mi", p.kubectl(t, "get", "pod", tx.pod(t), "-o", "jsonpath={.metadata.labels.team} {.spec.containers[0].resources.requests.memory}"))
}

func TestATemplateThatBreaksThePodIsRefusedByNew(t *testing.T) {
	t.Parallel()
	for template, why := range map[string]string{
		"spec: {restartPolicy: Always}":                                                "restartPolicy",
		"spec: {shareProcessNamespace: true}":                                          "shareProcessNamespace",
		"metadata: {name: mine}":                                                       "name",
		"spec: {containers: [{name: hub, command: [sleep]}]}":                          "command",
		"spec: {containers: [{name: hub, $patch: delete}]}":                            "missing",
		"spec: {volumes: [{name: dlite-workspace, $patch: delete}]}":                   "dlite-workspace",
		"metadata: {labels: {app.kubernetes.io/managed-by: me}}":                       "label",
		"spec: {containers: [{name: hub, env: [{name: DLITE_POD_TOKEN, value: me}]}]}": "variable",
		"spec: {initContainers: [{name: install, args: [x]}]}":                         "command",
		"spec: {nodeSelectors: {pool: ci}}":                                            "nodeSelectors",
		"nodeSelector: {pool: ci}":                                                     "nodeSelector",
		"spec: [":                                                                      "PodTemplate",
	} {
		_, err := kubernetes.New(kubernetes.Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, AgentImage: "agent:1", PodTemplate: []byte(template)})
		assert.ErrorContains(t, err, why, template)
	}
	_, err := kubernetes.New(kubernetes.Config{REST: &rest.Config{}})
	assert.ErrorContains(t, err, "AgentImage")
}

// Rule D7: the driver needs only the role of the manifest, in one namespace.
func TestTheRoleSuffices(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.apply(t, kubernetes.Role)
	p.kubectl(t, "create", "configmap", "dlite-stages")
	p.kubectl(t, "create", "serviceaccount", "delegate")
	p.kubectl(t, "create", "rolebinding", "delegate", "--role=dlite-pods", "--serviceaccount="+p.namespace+":delegate")
	token := strings.TrimSpace(p.kubectl(t, "create", "token", "delegate"))
	d := p.driver(t, func(c *kubernetes.Config) {
		c.REST = &rest.Config{Host: p.rest.Host, TLSClientConfig: rest.TLSClientConfig{CAData: p.rest.CAData}, BearerToken: token}
		c.Owner = "dlite-stages"
	})
	announced := p.sh("announced", "echo ran")
	announced.Auth = &stage.Auth{Address: "registry.test", Username: "me", Password: "hunter2"}
	tx := p.begin(t, d, announce(announced))
	assert.Equal(t, "ran\n", tx.run(t, announced))
	assert.Equal(t, "ran\n", tx.run(t, announced))
	found, err := d.Find(t.Context(), tx.env.Labels)
	require.NoError(t, err)
	assert.Len(t, found, 1)
	tx.cleanup(t)
	assert.NotContains(t, kubernetes.Role, "ClusterRole")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// apply creates the objects of a manifest.
func (p *place) apply(t *testing.T, manifest string) {
	t.Helper()
	file := t.TempDir() + "/manifest.yaml"
	writeFile(t, file, manifest)
	p.kubectl(t, "apply", "-f", file)
}

// Rules D7, T5: another driver continues a running step.
func TestAnotherDriverContinuesAStep(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	first, second := p.driver(t), p.driver(t)
	tx := p.begin(t, first)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	step := p.sh("step", "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo A=1 >> $DRONE_OUTPUT; echo went; exit 7")
	before, ended := drivertest.NewOutput(), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.Execute(ctx, tx.env, &driver.Step{Step: step}, before, tx.ledger)
	}()
	before.WaitFor(t, "begun\n")
	// The first driver ends: it does not read further output, and does not stop the step.
	tx.d = second
	var begun []driver.Resource
	for _, r := range tx.ledger.all() {
		if r.Labels[driver.LabelStep] == "step" {
			begun = append(begun, r)
		}
	}
	require.Len(t, begun, 1)
	out, done := drivertest.NewOutput(), make(chan error, 1)
	var res *driver.Result
	go func() {
		var err error
		res, err = tx.d.Reattach(t.Context(), tx.env, &driver.Step{Step: step}, out, tx.ledger, begun)
		done <- err
	}()
	out.WaitFor(t, "begun\n")
	tx.run(t, p.sh("other", "touch go"))
	require.NoError(t, <-done)
	assert.Equal(t, 7, res.ExitCode)
	assert.Equal(t, "begun\nwent\n", out.String())
	assert.Equal(t, map[string]string{"A": "1"}, res.Outputs)
	<-ended

	// Until Release, another driver gets the same.
	out = drivertest.NewOutput()
	res, err := tx.d.Reattach(t.Context(), tx.env, &driver.Step{Step: step}, out, tx.ledger, begun)
	require.NoError(t, err)
	assert.Equal(t, 7, res.ExitCode)
	assert.Equal(t, "begun\nwent\n", out.String())
	assert.Equal(t, map[string]string{"A": "1"}, res.Outputs)
	res.End()
	_, err = tx.d.Reattach(t.Context(), tx.env, &driver.Step{Step: step}, out, tx.ledger, begun)
	require.ErrorIs(t, err, driver.ErrLost)
	begun[0].ID += "-never-made"
	_, err = tx.d.Reattach(t.Context(), tx.env, &driver.Step{Step: step}, out, tx.ledger, begun)
	require.ErrorIs(t, err, driver.ErrNotBegun)
}

// Rule D7: if a step has no command, the driver reads the one of its image from the registry.
func TestAStepWithoutAnEntrypointRunsTheCommandOfItsImage(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	registry := p.NewRegistry(t, "user", "a password for tests")
	d := p.driver(t, func(c *kubernetes.Config) { c.InsecureRegistries = []string{registry.Host} })
	tx := p.begin(t, d)
	step := stage.Step{ID: "step", Image: registry.Image, Auth: &stage.Auth{Username: "user", Password: "a password for tests"}}
	assert.Empty(t, tx.run(t, step), "the image's command is a shell without input")
	step.Run.Command = []string{"echo", "given"}
	assert.Equal(t, "given\n", tx.run(t, step))

	step.Auth = nil
	_, err := tx.execute(t, step, drivertest.NewOutput())
	require.ErrorContains(t, err, "entrypoint")
	require.ErrorContains(t, err, registry.Image)

	// The pull secrets of the pods are used for that too.
	p.kubectl(t, "create", "secret", "docker-registry", "ours", "--docker-server="+registry.Host, "--docker-username=user", "--docker-password=a password for tests")
	tx = p.begin(t, p.driver(t, func(c *kubernetes.Config) {
		c.InsecureRegistries = []string{registry.Host}
		c.PodTemplate = []byte("spec: {imagePullSecrets: [{name: ours}]}")
	}))
	assert.Equal(t, "given\n", tx.run(t, step))
}
