package endtoend_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/internal/testbed"
)

// droneSecret is the secret of the runners of a Drone server in tests.
const droneSecret = "visibly-fake-drone-secret"

// droneRig is a Drone server and a bundled delegate that serves it alone.
type droneRig struct {
	*dronetest.Server
	dir      string
	delegate *mortal
}

// newDroneRig starts the server. The test starts the delegate.
func newDroneRig(t *testing.T, settings ...string) *droneRig {
	t.Helper()
	r := &droneRig{Server: dronetest.New(droneSecret), dir: t.TempDir()}
	t.Cleanup(r.Close)
	testbed.Keep(t, r.dir) // processes of steps survive a delegate
	path := filepath.Join(r.dir, "delegate")
	require.NoError(t, os.Rename(testbed.BuildStatic(t, "./examples/delegate"), path))
	file := filepath.Join(r.dir, "delegate.env")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil,
		"DRONE_RPC_HOST=%s\nDRONE_RPC_PROTO=http\nDRONE_RPC_SECRET=%s\nDRONE_RUNNER_NAME=rig\nHTTP_BIND=off\nWORK_DIR=%s\nLEDGER_DIR=%s\n%s\n",
		strings.TrimPrefix(r.URL, "http://"), droneSecret, filepath.Join(r.dir, "work"), filepath.Join(r.dir, "ledger"),
		strings.Join(settings, "\n")), 0o600))
	r.delegate = &mortal{t: t, path: path, args: []string{"server", "--env-file", file}}
	return r
}

// wait waits for the only stage of a build.
func (r *droneRig) wait(t *testing.T, build int64, within time.Duration) dronetest.Stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	stages, err := r.Wait(ctx, build)
	require.NoError(t, err, "%+v", stages)
	return stages[0]
}

// left lists the records of stages that the delegate still has.
func (r *droneRig) left(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"drone/*.stage", "drone/*.log", "drone-poller/*.task", "*.journal"} {
		found, err := filepath.Glob(filepath.Join(r.dir, "ledger", pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

func textOf(lines []dronetest.Line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Out)
	}
	return b.String()
}

// quickstartYAML is the quickstart's pipeline as a .drone.yml. TYPE and IMAGE are replaced.
const quickstartYAML = `
kind: pipeline
type: TYPE
name: default
clone: {disable: true}
steps:
- name: where
IMAGE
  commands: ['echo "running on $(uname -s) $(uname -m), in $PWD"']
- name: parser
IMAGE
  commands: ['echo compiling $UNIT', 'echo $UNIT > $UNIT.o']
  environment: {UNIT: parser}
  depends_on: [where]
- name: planner
IMAGE
  commands: ['echo compiling $UNIT', 'echo $UNIT > $UNIT.o']
  environment: {UNIT: planner}
  depends_on: [where]
- name: link
IMAGE
  commands: ['cat *.o > program', 'cat program']
  depends_on: [parser, planner]
- name: package
IMAGE
  commands: ['echo packaging build $DRONE_BUILD_NUMBER of $DRONE_REPO']
  depends_on: [link]
  when: {event: push}
- name: secret
IMAGE
  commands: ['echo "the token is $TOKEN"']
  environment: {TOKEN: {from_secret: token}}
  depends_on: [link]
- name: debug
IMAGE
  commands: ['echo only debug builds run this']
  when: {event: promote}
  depends_on: [link]
- name: fail
IMAGE
  commands: ['exit 3']
  depends_on: [package, secret]
- name: after
IMAGE
  commands: ['echo after $DRONE_BUILD_STATUS of $DRONE_FAILED_STEPS']
  depends_on: [fail]
  when: {status: [failure]}
- name: never
IMAGE
  commands: ['echo never']
  depends_on: [fail]
`

// checkQuickstart checks a stage that ran quickstartYAML.
func checkQuickstart(t *testing.T, got dronetest.Stage) {
	t.Helper()
	var ended []string
	logs := map[string]string{}
	for _, s := range got.Steps {
		ended = append(ended, fmt.Sprintf("%s %s %d", s.Name, s.Status, s.ExitCode))
		logs[s.Name] = textOf(s.Log)
		assert.Equal(t, 1, s.Ends, s.Name)
	}
	assert.Equal(t, []string{
		"where success 0", "parser success 0", "planner success 0", "link success 0", "package success 0", "secret success 0",
		"fail failure 3", "after success 0", "never skipped 0",
	}, ended, "%+v %v", got, logs)
	assert.Equal(t, "failure", got.Status, got.Error)
	assert.Contains(t, logs["where"], "running on Linux")
	assert.Contains(t, logs["planner"], "compiling planner")
	assert.Contains(t, logs["package"], "of octo/hello")
	assert.Contains(t, logs["secret"], "the token is ")
	assert.NotContains(t, logs["secret"], "visibly-fake-token", "rule S3")
	assert.Contains(t, logs["after"], "after failure of fail")
}

// The quickstart's pipeline runs for a Drone server on the host and in containers.
func TestADroneServerHasItsPipelinesRun(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	r := newDroneRig(t)
	r.delegate.start()
	defer r.delegate.stop()
	for kind, image := range map[string]string{"exec": "", "docker": fmt.Sprintf("  image: %s\n  pull: never", engine.Image)} {
		text := strings.ReplaceAll(strings.ReplaceAll(quickstartYAML, "TYPE", kind), "IMAGE\n", strings.TrimPrefix(image+"\n", "\n"))
		build := r.Add(dronetest.Build{Type: kind, Config: text, Secrets: map[string]string{"token": "visibly-fake-token"}})
		checkQuickstart(t, r.wait(t, build, time.Minute))
	}
	require.Eventually(t, func() bool { return len(r.left(t)) == 0 }, 30*time.Second, 20*time.Millisecond)
	log, err := os.ReadFile(r.delegate.path + ".log")
	require.NoError(t, err)
	assert.NotContains(t, string(log), " WRN ", "a delegate without a manager has nothing to warn of")
}

// killPoint is a call of the runner protocol at which the delegate is killed.
type killPoint struct {
	name         string
	method, path string // of the call; path is a part of it
	n            int32  // how often the call must come
	sample       string // in the small sample: with or without the effect of the call
}

// killPoints are the calls of a stage in their order.
var killPoints = []killPoint{
	{"accept", http.MethodPost, "/rpc/v2/stage/", 1, ""},
	{"details", http.MethodGet, "/rpc/v2/stage/", 1, ""},
	{"create", http.MethodPut, "/rpc/v2/stage/", 1, "with"},
	{"watch", http.MethodPost, "/watch", 1, ""},
	{"step runs", http.MethodPut, "/rpc/v2/step/", 1, ""},
	{"live lines", http.MethodPost, "/logs/batch", 1, "with"},
	{"upload", http.MethodPost, "/logs/upload", 1, "without"},
	{"step ends", http.MethodPut, "/rpc/v2/step/", 2, "with"},
	{"next runs", http.MethodPut, "/rpc/v2/step/", 3, "with"},
	{"end", http.MethodPut, "/rpc/v2/stage/", 2, "with"},
}

// reached returns a function that reports the call of the point.
func (k killPoint) reached() func(*http.Request) bool {
	var count atomic.Int32
	return func(r *http.Request) bool {
		return r.Method == k.method && strings.Contains(r.URL.Path, k.path) && count.Add(1) == k.n
	}
}

// killYAML is a stage with a step that runs for a while. TYPE and IMAGE are replaced.
const killYAML = `
kind: pipeline
type: TYPE
name: default
clone: {disable: true}
steps:
- name: first
IMAGE
  commands: ['for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done']
- name: second
IMAGE
  commands: ['echo over']
`

// killStage returns killYAML for a type and an image.
func killStage(kind, image string) dronetest.Build {
	if image != "" {
		image = "  image: " + image + "\n  pull: never\n"
	}
	return dronetest.Build{Type: kind, Config: strings.ReplaceAll(strings.ReplaceAll(killYAML, "TYPE", kind), "IMAGE\n", image)}
}

// The delegate is killed at each call, before or after its effect. The next process ends the
// stage: its steps have their right status and their whole log once, and nothing is left. There is
// one exception: if the server has created the steps and the delegate did not learn their ids, the
// stage ends with an error that says so.
//
// By default a few of the kills happen, and all with DLITE_TEST_KILL_INSTANTS.
func TestADroneStageSurvivesKillsOfTheDelegate(t *testing.T) {
	t.Parallel()
	killEverywhere(t, killStage("exec", ""), func(*testing.T, string) {})
}

// The same with steps in containers.
func TestADroneStageInContainersSurvivesKillsOfTheDelegate(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	killEverywhere(t, killStage("docker", engine.Image), func(t *testing.T, transaction string) { engine.LeavesNothing(t, transaction) })
}

// The same with steps in pods.
func TestADroneStageInPodsSurvivesKillsOfTheDelegate(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kubernetes(t)
	namespace := cluster.NewNamespace(t)
	killEverywhere(t, killStage("exec", ""), func(t *testing.T, _ string) {
		require.Eventually(t, func() bool {
			pods, err := cluster.Kubectl(t, "get", "pods,secrets", "-n", namespace, "-o", "name")
			return err == nil && strings.TrimSpace(pods) == ""
		}, time.Minute, 100*time.Millisecond, "left in the cluster")
	}, "DRIVERS=kubernetes", "KUBECONFIG="+cluster.Kubeconfig, "KUBERNETES_NAMESPACE="+namespace,
		"KUBERNETES_AGENT_IMAGE="+cluster.AgentImage(t), "KUBERNETES_STEP_IMAGE="+cluster.Image)
}

// The same with steps on machines of a pool. The delegates of all kills have one directory of machines, one after another, so
// that the snapshot is made once.
func TestADroneStageOnMachinesSurvivesKillsOfTheDelegate(t *testing.T) {
	t.Parallel()
	machines := t.TempDir()
	settings := []string{"DRIVERS=vm", "VM_STATE_DIR=" + machines, "VM_POOLS=" + onePool(t, testbed.VM(t))}
	killEverywhere(t, killStage("exec", ""), func(t *testing.T, _ string) {
		assert.Empty(t, testbed.CommandLines(machines+"/"), "machines are left")
	}, settings...)
}

// onePool returns the path of the settings of a pool with one machine.
func onePool(t *testing.T, guest *testbed.Guest) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `pools:
  - name: linux
    min: 1
    max: 1
    qemu: {binary: %q, kernel: %q, initrd: %q, append: %q, memory_mb: 192, snapshot: true, accel: tcg}
`, guest.QEMU, guest.Kernel, guest.Initrd, guest.Append), 0o600))
	return path
}

// killEverywhere runs a stage for each of the kills. clean checks that nothing is left of a transaction.
func killEverywhere(t *testing.T, build dronetest.Build, clean func(t *testing.T, transaction string), settings ...string) {
	t.Helper()
	all := killInstants(t, 0) > 0
	for _, point := range killPoints {
		for _, effect := range []string{"without", "with"} {
			if !all && point.sample != effect {
				continue
			}
			t.Run(fmt.Sprintf("%s %s effect", point.name, effect), func(t *testing.T) {
				r := newDroneRig(t, settings...)
				dead := r.killAt(t, point, effect == "with")
				r.delegate.start()
				id := r.Add(build)
				select {
				case <-dead:
				case <-time.After(2 * time.Minute):
					t.Fatal("the delegate does not come to the call")
				}
				r.delegate.start()
				got := r.wait(t, id, 2*time.Minute)
				checkKilled(t, got, point.name, effect == "with")
				require.Eventually(t, func() bool { return len(r.left(t)) == 0 }, 30*time.Second, 20*time.Millisecond)
				r.delegate.stop()
				sum := sha256.Sum256([]byte(r.URL))
				clean(t, fmt.Sprintf("drone-%x-%d", sum[:3], got.ID))
			})
		}
	}
}

// killAt kills the delegate at a call. The channel is closed when the delegate is dead.
func (r *droneRig) killAt(t *testing.T, point killPoint, effect bool) <-chan struct{} {
	t.Helper()
	dead, reached := make(chan struct{}), point.reached()
	r.Fault = func(req *http.Request) dronetest.Fault {
		if !reached(req) {
			return dronetest.NoFault
		}
		assert.NoError(t, r.delegate.cmd.Process.Kill())
		assert.Error(t, r.delegate.cmd.Wait())
		close(dead)
		if effect {
			return dronetest.NoFault
		}
		return dronetest.Unavailable
	}
	return dead
}

// checkKilled checks the stage of killYAML.
func checkKilled(t *testing.T, got dronetest.Stage, point string, effect bool) {
	t.Helper()
	assert.Equal(t, 1, got.Ends)
	if point == "create" && effect {
		assert.Equal(t, "error", got.Status)
		assert.Contains(t, got.Error, "ids of the steps was lost")
		return
	}
	require.Len(t, got.Steps, 2)
	for _, s := range got.Steps {
		assert.Equal(t, 1, s.Ends, "%+v", s)
	}
	assert.Equal(t, "success", got.Status, "%+v", got)
	for _, s := range got.Steps {
		assert.Equal(t, "success", s.Status, "%+v", s)
	}
	for i, want := range [][]string{{"line 1\n", "line 2\n", "line 3\n", "line 4\n", "line 5\n", "line 6\n"}, {"over\n"}} {
		var lines []string
		for _, l := range got.Steps[i].Log {
			if strings.HasPrefix(l.Out, "line ") || l.Out == "over\n" { // and not lines that the delegate adds
				lines = append(lines, l.Out)
			}
		}
		assert.Equal(t, want, lines, "%+v", got.Steps[i].Log)
	}
}

// The quickstart's pipeline runs on machines of a pool and in pods, if the delegate runs local stages there.
func TestADroneServerHasItsPipelinesRunElsewhere(t *testing.T) {
	t.Parallel()
	guest, cluster := testbed.VM(t), testbed.Kubernetes(t)
	namespace := cluster.NewNamespace(t)
	pools := onePool(t, guest)
	t.Run("stages", func(t *testing.T) {
		for name, settings := range map[string][]string{
			"machine": {"DRIVERS=vm", "VM_POOLS=" + pools},
			"pod": {
				"DRIVERS=kubernetes", "KUBECONFIG=" + cluster.Kubeconfig, "KUBERNETES_NAMESPACE=" + namespace,
				"KUBERNETES_AGENT_IMAGE=" + cluster.AgentImage(t), "KUBERNETES_STEP_IMAGE=" + cluster.Image,
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newDroneRig(t, settings...)
				r.delegate.start()
				defer r.delegate.stop()
				text := strings.ReplaceAll(strings.ReplaceAll(quickstartYAML, "TYPE", "exec"), "IMAGE\n", "")
				build := r.Add(dronetest.Build{Type: "exec", Config: text, Secrets: map[string]string{"token": "visibly-fake-token"}})
				checkQuickstart(t, r.wait(t, build, 3*time.Minute))
				require.Eventually(t, func() bool { return len(r.left(t)) == 0 }, 30*time.Second, 20*time.Millisecond)
			})
		}
	})
	pods, err := cluster.Kubectl(t, "get", "pods,secrets", "-n", namespace, "-o", "name")
	require.NoError(t, err)
	assert.Empty(t, strings.TrimSpace(pods), "left in the cluster")
}
