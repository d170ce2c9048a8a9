//go:build linux

package daemonset_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

// delegateConfig configures a delegate in a separate process.
type delegateConfig struct {
	URL, Account, Secret, State, Work, Name string
	Containers                              bool
}

// runDelegate is a delegate that a test kills.
func runDelegate(text string) {
	var c delegateConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	cfg := daemonset.Config{State: c.State, Programs: thisProgram, Log: zerolog.New(os.Stdout), HealthInterval: 50 * time.Millisecond}
	if c.Containers {
		d, err := newLocal(c.Work)
		if err != nil {
			panic(err)
		}
		cfg.Containers, cfg.Labels = d, map[string]string{driver.LabelDelegate: c.Name}
	}
	r, err := daemonset.New(cfg)
	if err != nil {
		panic(err)
	}
	hc, err := client.New(c.URL, c.Account, c.Secret)
	if err != nil {
		panic(err)
	}
	p := poller.New(hc, router.New(r.Routes()), poller.WithDaemons(r), poller.WithName("d"))
	if err := p.Run(context.Background(), 1); err != nil {
		panic(err)
	}
}

func newLocal(work string) (*local.Driver, error) {
	return local.New(local.Config{Host: host.Config{WorkDir: work, Trusted: true, Grace: 5 * time.Second}})
}

// launch starts a delegate in a process. Kill kills it.
func (s *stand) launch(c delegateConfig) (kill func()) {
	s.Helper()
	self, err := os.Executable()
	require.NoError(s, err)
	text, err := json.Marshal(c)
	require.NoError(s, err)
	cmd := exec.Command(self) //nolint:noctx // killed below
	cmd.Env = append(os.Environ(), delegateVariable+"="+string(text))
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	cmd.Stderr = os.Stderr
	require.NoError(s, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			_, _ = s.log.Write(append(lines.Bytes(), '\n'))
		}
	}()
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			<-done
			_ = cmd.Wait()
		}
	}
	s.Cleanup(kill)
	return kill
}

// alive reports whether a process runs. A process that nothing has waited for does not count.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(b, ')')
	return i > 0 && !strings.HasPrefix(string(b[i:]), ") Z")
}

// pids returns the processes that have written journals, by their kind: the names of the daemons are numbers, those of
// their children have the prefix child.
func (s *stand) pids(prefix string) (out []int) {
	s.Helper()
	entries, err := os.ReadDir(s.journal)
	require.NoError(s, err)
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if pid, err := strconv.Atoi(name); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// Rule G2: kill -9 of the delegate ends its daemons, and the next delegate ends the processes that the daemons had started, even processes
// that left their group. It then starts the daemons again, with their tasks.
func TestAKilledDelegateLeavesNoDaemons(t *testing.T) {
	s := newStopped(t, func(c *daemonset.Config) { c.Grace = 500 * time.Millisecond }, clienttest.Config{})
	c := delegateConfig{URL: s.srv.URL, Account: s.srv.Account, Secret: s.srv.Secret, State: s.cfg.State}
	s.srv.SetDaemonSets([]task.DaemonSet{s.set("a", "parent", nil, "t1"), s.set("b", "deaf", nil)}, payload("t1"))
	kill := s.launch(c)
	s.await("both daemons", func() bool {
		all := strings.Join(s.journals(), "\n")
		return strings.Contains(all, "assign t1") && len(s.pids("")) == 2 && len(s.pids("child-")) == 1
	})
	daemons, child := s.pids(""), s.pids("child-")[0]
	for _, pid := range append(daemons, child) {
		require.True(t, alive(pid))
	}
	kill()
	s.await("the end of the daemons", func() bool { return !alive(daemons[0]) && !alive(daemons[1]) })
	assert.True(t, alive(child), "the test needs a process that the kernel does not end")

	s.start()
	assert.Eventually(t, func() bool { return !alive(child) }, time.Minute, 10*time.Millisecond)
	s.report("healthy", healthy("a", "b"))
	s.await("the task again", func() bool { return strings.Count(strings.Join(s.journals(), "\n"), "assign t1") == 2 })
	s.stop()
	for _, pid := range append(s.pids(""), s.pids("child-")...) {
		assert.False(t, alive(pid), "process %d", pid)
	}
	records, err := filepath.Glob(filepath.Join(s.cfg.State, "*.json"))
	require.NoError(t, err)
	assert.Empty(t, records)
}

// daemonImage makes an image with the daemon of testdata.
func daemonImage(t *testing.T, engine *testbed.Engine) string {
	t.Helper()
	program, err := os.ReadFile(testbed.BuildStatic(t, "./driver/daemonset/testdata/daemon"))
	require.NoError(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "daemon", Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	ref := fmt.Sprintf("dlite-test-daemon:%d", os.Getpid())
	r, err := engine.Client.ImageImport(t.Context(), image.ImportSource{Source: &b, SourceName: "-"}, ref,
		image.ImportOptions{Changes: []string{`ENTRYPOINT ["/daemon"]`, "USER 1234:1234"}})
	require.NoError(t, err)
	_ = r.Close()
	t.Cleanup(func() { engine.RemoveImage(t, ref) })
	return ref
}

// containers returns the containers with the label of a delegate.
func containers(t *testing.T, engine *testbed.Engine, delegate string) (ids []string) {
	t.Helper()
	list, err := engine.Client.ContainerList(context.Background(), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", driver.LabelDelegate+"="+delegate)),
	})
	require.NoError(t, err)
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// Rule G2: a daemon set with an image is a container. It gets its tasks over a socket that steps do not reach, its output
// is in the log of the delegate, a crash restarts it, and it is removed at the end.
func TestADaemonInAContainer(t *testing.T) {
	engine := testbed.Docker(t)
	ref, name := daemonImage(t, engine), "daemon-"+filepath.Base(t.TempDir())+strconv.Itoa(os.Getpid())
	d, err := newLocal(t.TempDir())
	require.NoError(t, err)
	s := newStand(t, func(c *daemonset.Config) {
		c.Containers, c.Labels = d, map[string]string{driver.LabelDelegate: name}
	})
	t.Cleanup(func() {
		s.stop()
		assert.NoError(t, d.Close())
	})
	set := func(greeting string, tasks ...string) task.DaemonSet {
		return task.DaemonSet{
			ID: "a", Type: "printer", TaskIDs: tasks,
			Config: json.RawMessage(`{"image":"` + ref + `","pull":"Never","cpu":0.5,"memory_bytes":67108864,"envs":["GREETING=` + greeting + `"],"settings":{"n":1}}`),
		}
	}
	s.srv.SetDaemonSets([]task.DaemonSet{set("one", "t1")}, payload("t1"))
	s.report("healthy", healthy("a"))
	s.log.WaitFor(t, `assign t1 {\"of\":\"t1\"}`, 1)
	s.log.WaitFor(t, `settings {\"n\":1}`, 1)
	s.log.WaitFor(t, "greeting one", 1)
	ids := containers(t, engine, name)
	require.Len(t, ids, 1)
	info, err := engine.Client.ContainerInspect(t.Context(), ids[0])
	require.NoError(t, err)
	assert.Equal(t, int64(67108864), info.HostConfig.Memory)
	assert.Equal(t, int64(50_000), info.HostConfig.CPUQuota)
	assert.NotEmpty(t, info.HostConfig.LogConfig.Config["max-size"], "the engine would keep all output")

	require.NoError(t, engine.Client.ContainerKill(t.Context(), ids[0], "KILL"))
	s.log.WaitFor(t, `assign t1 {\"of\":\"t1\"}`, 2)
	s.srv.SetDaemonSets([]task.DaemonSet{set("two", "t1")}, payload("t1"))
	s.log.WaitFor(t, "greeting two", 1)
	s.report("healthy", healthy("a"))
	s.srv.SetDaemonSets(nil)
	s.report("gone", healthy())
	assert.Eventually(t, func() bool { return len(containers(t, engine, name)) == 0 }, time.Minute, 50*time.Millisecond)
}

// Rule G2: kill -9 of the delegate leaves a container, which the next delegate removes before it starts another one.
func TestAKilledDelegateLeavesNoContainer(t *testing.T) {
	engine := testbed.Docker(t)
	ref, name := daemonImage(t, engine), "daemon-"+filepath.Base(t.TempDir())+strconv.Itoa(os.Getpid())
	work := t.TempDir()
	d, err := newLocal(work)
	require.NoError(t, err)
	s := newStopped(t, func(c *daemonset.Config) {
		c.Containers, c.Labels = d, map[string]string{driver.LabelDelegate: name}
	}, clienttest.Config{})
	t.Cleanup(func() {
		s.stop()
		assert.NoError(t, d.Close())
	})
	s.srv.SetDaemonSets([]task.DaemonSet{{ID: "a", Type: "printer", Config: json.RawMessage(`{"image":"` + ref + `","pull":"Never"}`), TaskIDs: []string{"t1"}}}, payload("t1"))
	kill := s.launch(delegateConfig{
		URL: s.srv.URL, Account: s.srv.Account, Secret: s.srv.Secret, State: s.cfg.State, Work: work, Name: name, Containers: true,
	})
	s.log.WaitFor(t, "assign t1", 1)
	before := containers(t, engine, name)
	require.Len(t, before, 1)
	kill()
	require.Equal(t, before, containers(t, engine, name))
	s.start()
	s.log.WaitFor(t, "assign t1", 2)
	after := containers(t, engine, name)
	require.Len(t, after, 1)
	assert.NotEqual(t, before, after)
	s.stop()
	assert.Empty(t, containers(t, engine, name))
}
