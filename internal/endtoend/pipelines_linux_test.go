package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// Values of secrets that only the delegate has.
const (
	deployKey        = "not-a-real-key-17"
	registryPassword = "not-a-real-password-of-a-registry"
)

// pluginEntrypoint prints the settings of a plugin.
const pluginEntrypoint = `ENTRYPOINT ["/bin/sh","-c","env | grep ^PLUGIN_ | grep -v ARTIFACT | sort"]`

// pipelineScene is a bundled manager with its pipeline service, and a bundled delegate.
type pipelineScene struct {
	*programs

	engine *testbed.Engine
	forge  *forge
	bucket *bucket
	infra  map[string]map[string]string // values for the names between @, by the name of the infrastructure
}

func newPipelineScene(t *testing.T) *pipelineScene {
	t.Helper()
	needTool(t, "git", "bash")
	engine, guest, cluster := testbed.Docker(t), testbed.VM(t), testbed.Kubernetes(t)
	plugin := engine.ImageWith(t, "ENV IMAGE_NAME=plugin", pluginEntrypoint)
	cluster.Import(t, savedImage(t, engine, plugin))
	s := &pipelineScene{engine: engine, forge: startForge(t, func(srv *httptest.Server) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.HostIP, "0"))
		require.NoError(t, err)
		require.NoError(t, srv.Listener.Close())
		srv.Listener = l
		srv.Start()
	})}
	s.forge.addCode(t)
	s.bucket = startBucket(t, cluster.HostIP)
	registry := engine.NewRegistry(t, "bot", registryPassword)
	host, private, _ := strings.Cut(registry.Image, "/")
	settings := filepath.Join(t.TempDir(), "pipelines.yaml")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil,
		"connectors:\n  forge: {kind: git, url: %q, username: bot, password_secret: forge_password}\n"+
			"  registry: {kind: registry, url: %q, username: bot, password_secret: registry_password}\n"+
			"  cluster: {kind: kubernetes}\n"+
			"  bucket: {kind: aws, access_key_secret: bucket_access, secret_key_secret: bucket_key}\n"+
			"cache: {connector: bucket, bucket: caches, endpoint: %q, path_style: true}\n", s.forge.URL, "http://"+host, s.bucket.URL), 0o600))
	pools := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(pools, fmt.Appendf(nil, `pools:
  - name: linux
    min: 1
    max: 1
    qemu: {binary: %q, kernel: %q, initrd: %q, append: %q, memory_mb: 192, snapshot: true, accel: tcg}
`, guest.QEMU, guest.Kernel, guest.Initrd, guest.Append), 0o600))
	namespace := cluster.NewNamespace(t)
	s.programs = startProgramsWith(t, []string{"--pipelines-settings", settings},
		[]string{"DLITE_SECRET_deploy_key=" + deployKey, "DLITE_SECRET_forge_password=" + s.forge.password, "DLITE_SECRET_registry_password=" + registryPassword,
			"DLITE_SECRET_bucket_access=not-a-real-access-key", "DLITE_SECRET_bucket_key=" + bucketKey},
		"DRIVERS=local,vm,kubernetes", "MAX_STAGES=32", "VM_POOLS="+pools, "KUBECONFIG="+cluster.Kubeconfig, "KUBERNETES_NAMESPACE="+namespace,
		"KUBERNETES_AGENT_IMAGE="+cluster.AgentImage(t), "KUBERNETES_STEP_IMAGE="+cluster.Image)
	s.infra = map[string]map[string]string{
		"host":    {"INFRA": "{type: Docker}", "IMAGE": "null"}, // the word for no image
		"machine": {"INFRA": "{type: VM, spec: {type: Pool, spec: {poolName: linux}}}", "IMAGE": "null"},
		"docker":  {"INFRA": "{type: Docker}", "IMAGE": engine.Image, "PLUGIN": plugin, "REGISTRY": host, "PRIVATE": private},
		"pod":     {"INFRA": "{type: KubernetesDirect, spec: {connectorRef: cluster, namespace: " + namespace + "}}", "IMAGE": cluster.Image, "PLUGIN": plugin},
	}
	t.Cleanup(func() { // before the programs end
		pods, err := cluster.Kubectl(t, "get", "pods,secrets", "-n", namespace, "-o", "name")
		assert.NoError(t, err)
		assert.Empty(t, strings.TrimSpace(pods), "left in the cluster")
	})
	return s
}

// savedImage writes an image of the engine into a file.
func savedImage(t *testing.T, engine *testbed.Engine, ref string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	from, err := engine.Client.ImageSave(ctx, []string{ref})
	require.NoError(t, err)
	defer func() { _ = from.Close() }()
	file := filepath.Join(t.TempDir(), "image.tar")
	to, err := os.Create(file)
	require.NoError(t, err)
	_, err = to.ReadFrom(from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	return file
}

// addCode creates the repository code: one commit on trunk, one on next, which the tag v1 names,
// and one of pull request 7.
func (f *forge) addCode(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "content"), []byte("of next\n"), 0o600))
	f.add(t, "code", folder)
	bare := filepath.Join(f.dir, "code.git")
	f.git(t, bare, "tag", "v1", "next")
	work := filepath.Join(t.TempDir(), "work")
	f.git(t, ".", "clone", "-q", "-b", "next", bare, work)
	for _, change := range []struct{ content, ref string }{{"of the request\n", "refs/pull/7/head"}, {"of later\n", "refs/heads/next"}} {
		require.NoError(t, os.WriteFile(filepath.Join(work, "content"), []byte(change.content), 0o600))
		f.git(t, work, "commit", "-q", "-a", "-m", "Change the content")
		f.git(t, work, "push", "-q", "origin", "HEAD:"+change.ref)
	}
}

// start starts a run.
func (s *pipelineScene) start(t *testing.T, r *pipelineRun) api.Run {
	t.Helper()
	request := api.RunRequest{YAML: fill(t, "testdata/pipelines/"+r.file+".yaml", s.infra[r.infra], map[string]string{"PORT": freePort(t)})}
	if r.build != "" {
		request.Inputs = map[string]string{"pipeline.properties.ci.codebase.build": r.build}
	}
	body, err := json.Marshal(request)
	require.NoError(t, err)
	return s.decode(t, s.call(t, http.MethodPost, "/api/runs?accountId="+s.account, string(body)))
}

func (s *pipelineScene) decode(t *testing.T, answer []byte) api.Run {
	t.Helper()
	var run api.Run
	require.NoError(t, json.Unmarshal(answer, &run), "%s", answer)
	return run
}

// end waits for the end of a run.
func (s *pipelineScene) end(t *testing.T, run api.Run) api.Run {
	t.Helper()
	for begun := time.Now(); run.EndedAt.IsZero(); {
		require.Less(t, time.Since(begun), 5*time.Minute, "the run does not end:\n%s", reasons(run))
		run = s.decode(t, s.call(t, http.MethodGet, "/api/runs/"+run.ID+"?wait=30&accountId="+s.account, ""))
	}
	for _, n := range run.Nodes {
		if n.StageID != "" {
			s.engine.LeavesNothing(t, n.StageID)
		}
	}
	return run
}

// reasons lists the nodes of a run with the reasons of their statuses.
func reasons(run api.Run) string {
	var b strings.Builder
	for _, n := range run.Nodes {
		fmt.Fprintln(&b, n.Path, n.Status, n.Reason)
	}
	return b.String()
}

// outcome describes an ended run: each node with its status, results and log.
func (s *pipelineScene) outcome(t *testing.T, run api.Run) string {
	t.Helper()
	var b strings.Builder
	stage := ""
	for _, n := range run.Nodes {
		path := strings.ReplaceAll(strings.TrimPrefix(n.Path, "pipeline.stages."), ".spec.execution.steps.", "/")
		fmt.Fprint(&b, strings.ReplaceAll(path, ".steps.", "/"), " ", n.Status)
		if n.FailureKind != "" {
			fmt.Fprint(&b, " ", n.FailureKind)
		}
		if n.ExitCode != nil && *n.ExitCode != 0 {
			fmt.Fprint(&b, " exit code ", *n.ExitCode)
		}
		if n.Retries > 0 {
			fmt.Fprint(&b, " retries ", n.Retries)
		}
		for _, name := range slices.Sorted(maps.Keys(n.Outputs)) {
			fmt.Fprintf(&b, " %s=%s", name, n.Outputs[name])
		}
		b.WriteString("\n")
		if n.StageID != "" {
			stage = n.StageID
		}
		// The last lines of a killed step depend on the infrastructure.
		if n.Kind == "step" && !n.StartedAt.IsZero() && (n.FailureKind == "" || n.FailureKind == "exit_code") {
			for line := range strings.Lines(s.log(t, stage+"/"+n.StepID)) {
				if strings.HasPrefix(line, "Status: ") { // of a pull, in the words of the engine
					continue
				}
				b.WriteString("| " + strings.TrimSuffix(line, "\n") + "\n")
			}
		}
	}
	return b.String()
}

// pipelineRun is a run of a file of testdata/pipelines on an infrastructure.
type pipelineRun struct {
	file, infra    string
	build, content string // the codebase that the run clones
	run            api.Run
}

// check compares the run with the file of its outcome.
func (r *pipelineRun) check(t *testing.T, s *pipelineScene) {
	t.Helper()
	run := s.end(t, r.run)
	want := fill(t, "testdata/pipelines/"+r.file+".txt", map[string]string{"CONTENT": r.content}, s.infra[r.infra])
	assert.Equal(t, want, s.outcome(t, run), "%s", reasons(run))
}

// everyRun returns the runs of the test. The codebase has the commit.
func everyRun(commit string) []*pipelineRun {
	runs := []*pipelineRun{
		{file: "clone", infra: "host", build: "branch:next", content: "of later"},
		{file: "clone", infra: "host", build: "tag:v1", content: "of next"},
		{file: "clone", infra: "docker", build: "PR:7", content: "of the request"},
		{file: "clone", infra: "docker", build: "commitSha:" + commit, content: "of next"},
	}
	for _, kind := range []struct{ file, infras string }{
		{"expired", "host"}, // first, because its time counts
		{"values", "host docker pod machine"},
		{"failures", "host docker pod"},
		{"containers", "docker pod"},
		{"limits", "docker pod"},
		{"graph", "host"},
		{"engine", "docker"},
	} {
		for infra := range strings.FieldsSeq(kind.infras) {
			runs = append(runs, &pipelineRun{file: kind.file, infra: infra})
		}
	}
	return runs
}

// Rules X2, D1, D2, D6, D7: the bundled programs run pipelines on this machine, in containers, in
// pods and on a machine, all at once. A pipeline ends in the same way on each of them.
func TestPipelinesEndTheSameWayOnEveryInfrastructure(t *testing.T) {
	t.Parallel()
	s := newPipelineScene(t)
	runs := everyRun(s.forge.git(t, filepath.Join(s.forge.dir, "code.git"), "rev-parse", "v1"))
	for _, r := range runs {
		r.run = s.start(t, r)
	}
	aborted := &pipelineRun{file: "aborted", infra: "docker"}
	aborted.run = s.start(t, aborted)
	s.abort(t, aborted.run)
	for _, r := range append(runs, aborted) {
		kind, _, _ := strings.Cut(r.build, ":")
		t.Run(r.file+" "+kind+" "+r.infra, func(t *testing.T) { r.check(t, s) })
	}
	t.Run("caches", s.cachesComeBack)
	s.findNoSecret(t)
}

// abort aborts a run when its steps left and right are running.
func (s *pipelineScene) abort(t *testing.T, run api.Run) {
	t.Helper()
	for begun := time.Now(); !isRunning(run, "left", "right"); {
		require.Less(t, time.Since(begun), 3*time.Minute, "%s", reasons(run))
		run = s.decode(t, s.call(t, http.MethodGet, "/api/runs/"+run.ID+"?wait=1&accountId="+s.account, ""))
	}
	s.call(t, http.MethodPost, "/api/runs/"+run.ID+"/abort?accountId="+s.account, "")
}

func isRunning(run api.Run, steps ...string) bool {
	n := 0
	for _, node := range run.Nodes {
		if slices.Contains(steps, node.Identifier) && node.Status == "RUNNING" {
			n++
		}
	}
	return n == len(steps)
}

// findNoSecret checks that the manager stored no value of a secret: the delegate alone has them.
func (s *pipelineScene) findNoSecret(t *testing.T) {
	t.Helper()
	for _, file := range filesBelow(t, s.data) {
		text, err := os.ReadFile(filepath.Join(s.data, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a temporary file
		}
		require.NoError(t, err)
		for _, secret := range []string{deployKey, registryPassword, bucketKey, s.forge.password} {
			assert.NotContains(t, string(text), secret, "rule S1: %s", file)
		}
	}
}
