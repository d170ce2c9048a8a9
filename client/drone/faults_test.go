package drone_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task/stage"
)

// faulty makes about one in n calls fail, each way equally often.
func faulty(seed uint64, n int) func(*http.Request) dronetest.Fault {
	source := rand.New(rand.NewPCG(seed, 1))
	lock := make(chan struct{}, 1)
	return func(r *http.Request) dronetest.Fault {
		lock <- struct{}{}
		defer func() { <-lock }()
		if source.IntN(n) > 0 {
			return dronetest.NoFault
		}
		return dronetest.Fault(1 + source.IntN(3))
	}
}

// numbered writes a pipeline whose configuration is "lines LINES [exit CODE]".
func numbered(config []byte, _ string, _ yaml.Input) (*yaml.Plan, error) {
	var lines, code int
	if _, err := fmt.Sscanf(string(config), "lines %d exit %d", &lines, &code); err != nil {
		return nil, err
	}
	plan := &yaml.Plan{}
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done", lines)
	for i, last := range []bool{false, true} {
		s := yaml.Step{Number: i + 1, Name: "step-" + strconv.Itoa(i), OnSuccess: true}
		if last {
			s.DependsOn, script = []string{"step-0"}, script+"; exit "+strconv.Itoa(code)
		}
		s.Execute.Step = stage.Step{Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{script}}}
		plan.Steps = append(plan.Steps, s)
	}
	return plan, nil
}

// Answers are lost, calls fail, the server restarts and builds are cancelled. Each stage and
// each step ends once with the right status, and each log is whole. The exception is a stage
// whose steps were created by a call without an answer: only the answer has their ids. It ends
// with an error that says so.
func TestStagesEndOnceInSpiteOfFaults(t *testing.T) {
	t.Parallel()
	count := 60
	if n, err := strconv.Atoi(os.Getenv("DLITE_TEST_DRONE_STAGES")); err == nil {
		count = n
	}
	s := serve(t)
	s.Hold = 2 * time.Second
	s.Fault = faulty(7, 12)
	start(t, s, 8, func(c *drone.Config) { c.Compile = numbered })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+time.Duration(count)*time.Second)
	defer cancel()
	type want struct {
		build       int64
		lines, code int
		cancelled   bool
	}
	var all []want
	for i := range count {
		w := want{lines: 1 + i%7*10, code: []int{0, 0, 1, 78, 3}[i%5], cancelled: i%6 == 5}
		w.build = s.Add(dronetest.Build{Config: fmt.Sprintf("lines %d exit %d", w.lines, w.code)})
		all = append(all, w)
	}
	go func() { // cancel each in some state
		for i, w := range all {
			if w.cancelled {
				_, _ = s.Await(ctx, w.build, func(list []dronetest.Stage) bool {
					return i%12 == 5 && list[0].Machine != "" || list[0].Status != "pending"
				})
				s.Cancel(w.build)
			}
			if i%50 == 49 {
				s.Restart()
			}
		}
	}()
	lost := 0
	for _, w := range all {
		stages, err := s.Wait(ctx, w.build)
		require.NoError(t, err, "%+v", stages)
		got := stages[0]
		if got.Status == "error" && strings.Contains(got.Error, "ids of the steps was lost") {
			lost++
			continue
		}
		if w.cancelled {
			assert.Contains(t, []string{"killed", "skipped", "success", "failure"}, got.Status)
			for _, step := range got.Steps {
				assert.Contains(t, []string{"killed", "skipped", "success", "failure"}, step.Status)
				assert.LessOrEqual(t, step.Ends, 1)
			}
			continue
		}
		status := "success"
		if w.code == 1 || w.code == 3 {
			status = "failure"
		}
		assert.Equal(t, status, got.Status, "%+v", got)
		assert.Equal(t, 1, got.Ends)
		require.Len(t, got.Steps, 2)
		for i, step := range got.Steps {
			assert.Equal(t, 1, step.Ends, "%+v", step)
			assert.Len(t, step.Log, w.lines)
			for n, l := range step.Log {
				assert.Equal(t, n, l.Pos)
				assert.Equal(t, fmt.Sprintf("line %d\n", n), l.Out)
			}
			if i == 1 {
				assert.Equal(t, w.code, step.ExitCode)
			}
		}
	}
	t.Logf("%d of %d stages lost the ids of their steps", lost, count)
	assert.LessOrEqual(t, lost, count/5)
}
