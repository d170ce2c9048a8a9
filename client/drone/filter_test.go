package drone_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

// A runner gets the stages of its types, its platform and exactly its labels.
func TestARunnerGetsTheStagesOfItsFilter(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ours := dronetest.Build{Type: "exec", Arch: "arm", Variant: "v7", Labels: map[string]string{"disk": "fast"}, Config: execPipeline("- {name: a, commands: [echo]}\n")}
	others := map[string]func(*dronetest.Build){
		"type":         func(b *dronetest.Build) { b.Type = "ssh" },
		"architecture": func(b *dronetest.Build) { b.Arch = "arm64" },
		"variant":      func(b *dronetest.Build) { b.Variant = "v6" },
		"kernel":       func(b *dronetest.Build) { b.Kernel = "1809" },
		"no label":     func(b *dronetest.Build) { b.Labels = nil },
		"other label":  func(b *dronetest.Build) { b.Labels = map[string]string{"disk": "slow"} },
		"more labels":  func(b *dronetest.Build) { b.Labels = map[string]string{"disk": "fast", "gpu": "yes"} },
	}
	builds := map[string]int64{}
	for name, change := range others {
		b := ours
		change(&b)
		builds[name] = s.Add(b)
	}
	start(t, s, 2, func(c *drone.Config) { c.Arch, c.Variant, c.Labels = "arm", "v7", map[string]string{"disk": "fast"} })
	assert.Equal(t, "success", wait(t, s, s.Add(ours)).Status)
	ours.Variant = ""
	assert.Equal(t, "success", wait(t, s, s.Add(ours)).Status, "a stage without a variant suits every one")
	for name, build := range builds {
		assert.Equal(t, "pending", s.Stages(build)[0].Status, name)
		assert.Empty(t, s.Stages(build)[0].Machine, name)
	}
}

// Two runners are offered the same stages. One of them accepts each.
func TestTwoRunnersShareAServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, name := range []string{"one", "two"} {
		start(t, s, 2, func(c *drone.Config) { c.Name, c.Compile = name, shell("echo over") })
	}
	var builds []int64
	for range 20 {
		builds = append(builds, s.Add(dronetest.Build{}))
	}
	machines := map[string]int{}
	for _, build := range builds {
		got := wait(t, s, build)
		assert.Equal(t, "success", got.Status, got.Error)
		assert.Equal(t, 1, got.Ends)
		require.Len(t, got.Steps, 1)
		assert.Equal(t, 1, got.Steps[0].Ends)
		assert.Equal(t, "over\n", logOf(got.Steps[0]))
		machines[got.Machine]++
	}
	assert.Len(t, machines, 2, "%v", machines)
}

// The limit of a pipeline holds its stages back at the server. They take no slot: other stages run.
func TestTheLimitOfAPipelineTakesNoSlots(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 2, pipelines)
	flag := filepath.Join(t.TempDir(), "go")
	limited := dronetest.Build{Type: "exec", Limit: 1, Config: execPipeline("- {name: a, commands: ['until [ -e " + flag + " ]; do sleep 0.01; done']}\n")}
	first, second := s.Add(limited), s.Add(limited)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Await(ctx, first, func(list []dronetest.Stage) bool { return list[0].Status == "running" })
	require.NoError(t, err)
	for range 3 {
		other := dronetest.Build{Type: "exec", Stages: []string{"other"}, Config: "kind: pipeline\ntype: exec\nname: other\nclone: {disable: true}\nsteps:\n- {name: a, commands: [echo]}\n"}
		assert.Equal(t, "success", wait(t, s, s.Add(other)).Status)
	}
	assert.Equal(t, "pending", s.Stages(second)[0].Status)
	assert.Empty(t, s.Stages(second)[0].Machine)
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	assert.Equal(t, "success", wait(t, s, first).Status)
	assert.Equal(t, "success", wait(t, s, second).Status)
}

// scripted is a driver whose steps end with a given result.
type scripted struct {
	idle
	result driver.Result
	err    error
}

func (d scripted) Execute(context.Context, *driver.Environment, *driver.Step, io.Writer, driver.Ledger) (*driver.Result, error) {
	return &d.result, d.err
}

// The exit codes that the runner sets itself (docs/protocol.md 6).
func TestExitCodesOfTheRunner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		driver scripted
		status string
		code   int
	}{
		"out of memory": {scripted{result: driver.Result{ExitCode: 1, OOMKilled: true}}, "failure", 137},
		"killed":        {scripted{result: driver.Result{ExitCode: 137}}, "failure", 137},
		"not started":   {scripted{err: errors.New("no such image")}, "error", 255},
	} {
		s := serve(t)
		runDrone(t, c.driver, s, shell("true"))
		got := wait(t, s, s.Add(dronetest.Build{}))
		require.Len(t, got.Steps, 1, name)
		assert.Equal(t, c.status, got.Steps[0].Status, "%s: %+v", name, got)
		assert.Equal(t, c.code, got.Steps[0].ExitCode, name)
		assert.Equal(t, "failure", got.Status, name)
		assert.Equal(t, c.code, got.ExitCode, name)
		if c.driver.err != nil {
			assert.Contains(t, got.Steps[0].Error, "no such image")
		}
	}
}

// twice answers each task again with a failure, like a poller that was killed before it noted its answer.
type twice struct{ *drone.Client }

func (c twice) Respond(ctx context.Context, id string, t *task.Task, r *task.Response) error {
	err := c.Client.Respond(ctx, id, t, r)
	if err == nil {
		_ = c.Client.Respond(ctx, id, t, &task.Response{ID: t.ID, Code: task.Failed, Error: "restarted"})
	}
	return err
}

// The first answer to a task counts.
func TestAnAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	slots := capacity.NewSlots(1)
	c, err := drone.New(drone.Config{Endpoint: s.URL, Secret: secret, OS: "linux", Arch: "amd64", Slots: slots, Compile: shell("true", "true")})
	require.NoError(t, err)
	runDelegate(t, idle{}, twice{c}, slots, transaction.WithLog(c.Log(nil)))
	got := wait(t, s, s.Add(dronetest.Build{}))
	assert.Equal(t, []string{"step-a success 0", "step-b success 0"}, summary(got), "%+v", got)
	assert.Equal(t, "success", got.Status, got.Error)
	for _, step := range got.Steps {
		assert.Equal(t, 1, step.Ends)
	}
}
