package endtoend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	docker "github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

// atOnce is the number of parallel transactions when the delegate is killed.
const atOnce = 4

// instantsVariable sets how many times each test kills the delegate at a random moment.
const instantsVariable = "DLITE_TEST_KILL_INSTANTS"

// killInstants returns the number of kills at random moments. The default is a small sample.
func killInstants(t *testing.T, sample int) int {
	t.Helper()
	text := os.Getenv(instantsVariable)
	if text == "" {
		return sample
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, instantsVariable)
	return n
}

// scene is a manager, an engine with resources that the delegate does not own, and a delegate
// that is killed and started again.
type scene struct {
	t       *testing.T
	engine  *testbed.Engine
	host    string // the engine's address, if it differs from the environment's
	manager *manager.Manager
	url     string
	dir     string
	memory  string
	token   string // an argument of every process that a step starts
	name    string // the delegate's name
	infra   string // the infrastructure of the stages; empty is this machine

	bystander, network string
	submitted          int
	stages             []string // stages that the manager has not ended yet
	ends               map[api.Status]int
	cmd                *exec.Cmd
	stdin              io.WriteCloser
	stdout             *bufio.Scanner
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := newSceneOn(t, testbed.Docker(t), "")
	t.Cleanup(s.removeBystanders)
	s.addBystanders("")
	return s
}

// newSceneOn returns a scene on this engine, without bystanders. With an address the engine,
// and everything on it, is removed at the end of the test.
func newSceneOn(t *testing.T, engine *testbed.Engine, host string) *scene {
	t.Helper()
	s := &scene{
		t: t, ends: map[api.Status]int{}, engine: engine, host: host, dir: t.TempDir(), token: fmt.Sprintf("7%08d", rand.N(100_000_000)),
	}
	s.name = "crash-test-" + s.token
	require.NoError(t, os.Chmod(s.dir, 0o711)) //nolint:gosec // steps get through
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "work"), 0o711))
	var err error
	s.memory, err = os.MkdirTemp("/dev/shm", "dlite-crash-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(s.memory) })
	s.manager, err = manager.New(manager.Config{
		Accounts: map[string]string{account: secret}, HeartbeatTimeout: 700 * time.Millisecond, AcquireTimeout: 300 * time.Millisecond,
		QueueTimeout: 2 * time.Minute,
	})
	require.NoError(t, err)
	srv := httptest.NewServer(s.manager)
	s.url = srv.URL
	t.Cleanup(func() {
		require.NoError(t, s.manager.Close())
		srv.Close()
	})
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
	})
	return s
}

// addBystanders creates resources that the delegate must not remove: a network, and on it a
// container with the delegate's labels but another name.
func (s *scene) addBystanders(restart container.RestartPolicyMode) {
	n, err := s.engine.Client.NetworkCreate(s.t.Context(), "bystander-"+s.token, network.CreateOptions{})
	require.NoError(s.t, err)
	s.network = n.ID
	c, err := s.engine.Client.ContainerCreate(s.t.Context(), &container.Config{
		Image: s.engine.Image, Cmd: []string{"sh", "-c", "trap exit TERM; sleep 3600 & wait"},
		Labels: map[string]string{driver.LabelDelegate: s.name, driver.LabelTransaction: "foreign"},
	}, &container.HostConfig{
		NetworkMode: container.NetworkMode(n.ID), RestartPolicy: container.RestartPolicy{Name: restart},
	}, nil, nil, "")
	require.NoError(s.t, err)
	s.bystander = c.ID
	require.NoError(s.t, s.engine.Client.ContainerStart(s.t.Context(), c.ID, container.StartOptions{}))
}

// submit submits a stage with a host step that leaves child processes, and a container step.
func (s *scene) submit() {
	s.submitSteps(
		s.step("host", "", "echo x > file; sleep 600."+s.token+" & (sleep 600."+s.token+" &) ; sleep 0.1"),
		s.step("container", s.engine.Image, "sleep 0.2"),
		s.step("last", "", "cat file"),
	)
}

func (s *scene) removeBystanders() {
	ctx := context.WithoutCancel(s.t.Context())
	if s.bystander != "" {
		assert.NoError(s.t, s.engine.Client.ContainerRemove(ctx, s.bystander, container.RemoveOptions{Force: true}))
	}
	if s.network != "" {
		assert.NoError(s.t, s.engine.Client.NetworkRemove(ctx, s.network))
	}
}

func (s *scene) step(id, image, script string) stage.Step {
	return stage.Step{ID: id, Image: image, Pull: "Never", Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}
}

func (s *scene) submitSteps(steps ...stage.Step) {
	s.submitted++
	req := api.StageRequest{ID: fmt.Sprintf("crash-%s-%d", s.token, s.submitted), Infra: s.infra}
	for _, step := range steps {
		data, err := json.Marshal(step)
		require.NoError(s.t, err)
		req.Steps = append(req.Steps, api.StepRequest{ID: step.ID, Data: data})
	}
	st, err := s.manager.SubmitStage(s.t.Context(), account, req)
	require.NoError(s.t, err)
	s.stages = append(s.stages, st.ID)
}

// start runs the delegate until it has cleaned up. It returns false if the delegate killed
// itself before, as its orders demand.
func (s *scene) start(o orders) bool {
	s.launch(o)
	if o.Fault != "" && !s.stdout.Scan() {
		s.wait()
		return false
	}
	if o.Fault == "" {
		s.expect("recovered")
	}
	return true
}

// launch starts the delegate, which cleans up first.
func (s *scene) launch(o orders) {
	o.URL, o.Name, o.Dir, o.Memory = s.url, s.name, s.dir, s.memory
	text, err := json.Marshal(o)
	require.NoError(s.t, err)
	self, err := os.Executable()
	require.NoError(s.t, err)
	s.cmd = exec.Command(self) //nolint:noctx // it is killed by hand
	s.cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	if s.host != "" {
		s.cmd.Env = append(s.cmd.Env, docker.EnvOverrideHost+"="+s.host)
	}
	s.cmd.Stderr = os.Stderr
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	s.stdout = bufio.NewScanner(out)
	require.NoError(s.t, s.cmd.Start())
}

func (s *scene) expect(line string) {
	s.t.Helper()
	require.True(s.t, s.stdout.Scan(), "the delegate ended before it said %q", line)
	require.Equal(s.t, line, s.stdout.Text())
}

// work lets a delegate take tasks after it has cleaned up.
func (s *scene) work() {
	_, err := io.WriteString(s.stdin, "\n")
	require.NoError(s.t, err)
}

// kill ends the delegate with SIGKILL, unless it has ended already.
func (s *scene) kill() {
	_ = s.cmd.Process.Kill()
	s.wait()
}

func (s *scene) wait() {
	_ = s.cmd.Wait() // Wait reports the signal as an error
	s.cmd = nil
}

// late is how long after a kill the engine may still create resources for the killed process.
// The delegate has the same time to remove them.
const late = 20 * time.Second

// assertClean looks for resources of earlier stages while no stage runs. Directories and
// processes must be gone at once. Resources that the engine created within tolerance may still
// exist.
func (s *scene) assertClean(when string, tolerance time.Duration) {
	s.t.Helper()
	for _, dir := range []string{filepath.Join(s.dir, "work"), s.memory} {
		left, err := os.ReadDir(dir)
		require.NoError(s.t, err)
		require.Empty(s.t, left, "%s %s", dir, when)
	}
	require.Empty(s.t, testbed.CommandLines(s.token), "processes %s", when)
	require.Empty(s.t, s.leftOnEngine(tolerance), "on the engine %s", when)
	require.Empty(s.t, s.leftOnRecord(tolerance), "on record %s", when)
	s.assertBystanders(when)
}

// left returns the engine's remaining resources.
func (s *scene) left(tolerance time.Duration) []string { return s.leftOnEngine(tolerance) }

// leftOnEngine returns the delegate's containers and networks that are older than tolerance.
func (s *scene) leftOnEngine(tolerance time.Duration) (left []string) {
	ctx := s.t.Context()
	limit := time.Now().Add(-tolerance)
	mine := filters.NewArgs(filters.Arg("label", driver.LabelDelegate+"="+s.name))
	containers, err := s.engine.Client.ContainerList(ctx, container.ListOptions{All: true, Filters: mine})
	require.NoError(s.t, err)
	for _, c := range containers {
		if c.ID != s.bystander && time.Unix(c.Created, 0).Before(limit) {
			left = append(left, fmt.Sprintf("container %v of %s", c.Names, c.Labels[driver.LabelTransaction]))
		}
	}
	networks, err := s.engine.Client.NetworkList(ctx, network.ListOptions{Filters: mine})
	require.NoError(s.t, err)
	for _, n := range networks {
		if n.Created.Before(limit) {
			left = append(left, fmt.Sprintf("network %s of %s", n.Name, n.Labels[driver.LabelTransaction]))
		}
	}
	return left
}

func (s *scene) leftOnRecord(tolerance time.Duration) (left []string) {
	records, err := filepath.Glob(filepath.Join(s.dir, "ledger", "*.ledger"))
	require.NoError(s.t, err)
	for _, path := range records {
		if info, err := os.Stat(path); err == nil && info.ModTime().Before(time.Now().Add(-tolerance)) {
			left = append(left, path)
		}
	}
	return left
}

func (s *scene) assertBystanders(when string) {
	s.t.Helper()
	c, err := s.engine.Client.ContainerInspect(s.t.Context(), s.bystander)
	require.NoError(s.t, err, "the bystander %s", when)
	require.True(s.t, c.State.Running, "the bystander runs %s", when)
	_, err = s.engine.Client.NetworkInspect(s.t.Context(), s.network, network.InspectOptions{})
	require.NoError(s.t, err, "the bystander's network %s", when)
}

// awaitStageEnds waits until the manager has the end of every stage.
func (s *scene) awaitStageEnds() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	for _, id := range s.stages {
		st, err := s.manager.WaitStage(ctx, account, id)
		require.NoError(s.t, err, "the manager does not know how %s ended", id)
		s.ends[st.Status]++
	}
	s.stages = nil
}

// Rules T2, T3: a delegate that kills itself at any point leaves no resource after its next
// start.
func TestAKillAtEveryFaultPointLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	s := newScene(t)
	points := s.faultPoints(s, atOnce, 20)
	for i, point := range slices.Sorted(maps.Keys(points)) {
		s.fill()
		for n := 1 + i%min(points[point], atOnce); !s.start(orders{Fault: point, N: n}); n++ {
			// The delegate died while it cleaned up after the previous one, which is a fault
			// point like any other. The next delegate passes it.
		}
		s.assertClean("before a kill "+point, late)
		s.work()
		s.untilDead(point, s.fill)
	}
	ends := s.finish(s)
	t.Logf("killed at %d fault points with %d transactions at once: %d stages submitted, which ended %v; nothing was left",
		len(points), atOnce, s.submitted, ends)
}

// untilDead gives the delegate work until it has reached its fault point.
func (s *scene) untilDead(point string, fill func()) {
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		for s.stdout.Scan() {
		}
	}()
	more := time.NewTicker(100 * time.Millisecond)
	defer more.Stop()
	for limit := time.After(time.Minute); ; {
		select {
		case <-dead:
			s.wait()
			return
		case <-more.C:
			fill()
		case <-limit:
			require.NoError(s.t, s.cmd.Process.Kill())
			<-dead
			require.FailNow(s.t, "the delegate did not come to its fault point", point)
		}
	}
}

// infrastructure is a scene and the infrastructure of its stages.
type infrastructure interface {
	fill()
	start(o orders) bool
	assertClean(when string, tolerance time.Duration)
	left(tolerance time.Duration) []string // remaining resources of the stages
}

// faultPoints runs the stages of a world once, without a kill, and counts the fault points
// that they pass.
func (s *scene) faultPoints(w infrastructure, stages, least int) map[string]int {
	s.t.Helper()
	w.fill()
	w.start(orders{Count: true})
	s.work()
	s.expect("working")
	s.awaitStageEnds()
	require.Equal(s.t, map[api.Status]int{api.Success: stages}, s.ends)
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.True(s.t, s.stdout.Scan())
	var points map[string]int
	require.NoError(s.t, json.Unmarshal(s.stdout.Bytes(), &points), s.stdout.Text())
	s.wait()
	w.assertClean("without a kill", 0)
	require.Greater(s.t, len(points), least, "%v", points)
	return points
}

// finish lets a last delegate work until every stage has ended and no resource is left. Then
// it drains the delegate. It returns the number of stages by status.
func (s *scene) finish(w infrastructure) map[api.Status]int {
	s.t.Helper()
	w.start(orders{})
	w.assertClean("after the last kill", late)
	s.work()
	s.expect("working")
	s.awaitStageEnds()
	require.Eventually(s.t, func() bool { return len(w.left(0))+len(s.leftOnRecord(0)) == 0 }, 3*late, 200*time.Millisecond)
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.wait()
	w.assertClean("at the end", 0)
	for _, d := range s.manager.Delegates(account) {
		require.Zero(s.t, d.Stages, "slots taken on delegate %s (%s)", d.ID, d.State)
	}
	return s.ends
}

// killAtInstants kills each delegate of a world at a random time after it has begun to work,
// with the stages in any state.
func (s *scene) killAtInstants(w infrastructure, times int, within time.Duration) {
	s.t.Helper()
	busy, begin := 0, time.Now()
	for i := range times {
		w.fill()
		started := time.Now()
		w.start(orders{})
		w.assertClean(fmt.Sprintf("before run %d", i), late)
		s.work()
		s.expect("working")
		<-time.After(rand.N(within))
		s.kill()
		if len(s.leftOnRecord(0)) > len(s.leftOnRecord(time.Since(started))) {
			busy++
		}
	}
	ends := s.finish(w)
	require.Greater(s.t, busy, times/4, "most kills should hit open transactions")
	s.t.Logf("killed %d times in %s, %d times with transactions open: %d stages submitted, which ended %v; nothing was left",
		times, time.Since(begin).Round(time.Second), busy, s.submitted, ends)
}

// fill submits stages until the intended number is running.
func (s *scene) fill() {
	s.forgetEnded()
	for len(s.stages) < atOnce {
		s.submit()
	}
}

// Rules T2, T3: a delegate that is killed at random moments, with the stages in any state,
// leaves no resource.
func TestKillsAtRandomInstantsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	s := newScene(t)
	s.killAtInstants(s, killInstants(t, 40), 600*time.Millisecond)
}

// forgetEnded drops the stages that have ended at the manager.
func (s *scene) forgetEnded() {
	s.stages = slices.DeleteFunc(s.stages, func(id string) bool {
		st, err := s.manager.Stage(account, id)
		require.NoError(s.t, err)
		if st.Status.Ended() {
			s.ends[st.Status]++
		}
		return st.Status.Ended()
	})
}
