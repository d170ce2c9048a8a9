package endtoend_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

// restarts is the number of kills of the delegate that its stages must survive.
const restarts = 40

// survival is a scene whose manager waits until a delegate comes back, and whose steps count
// their runs.
type survival struct {
	*scene
	logs  *logservice.Server
	count string // the directory where steps count their runs
	host  bool   // the steps run on the host
	harm  func() // what happens to the delegate; nil kills it
}

func newSurvival(t *testing.T) *survival {
	t.Helper()
	s := &survival{scene: newScene(t)}
	s.count = filepath.Join(s.dir, "count")
	require.NoError(t, os.Mkdir(s.count, 0o777))
	require.NoError(t, os.Chmod(s.count, 0o777)) //nolint:gosec // steps write into it
	var err error
	s.logs, err = logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{account: "visibly-fake-log-token"})})
	require.NoError(t, err)
	logs := httptest.NewServer(s.logs)
	require.NoError(t, s.manager.Close()) // the scene's manager, which waits less
	s.manager, err = manager.New(manager.Config{
		Accounts: map[string]string{account: secret}, HeartbeatTimeout: time.Minute, AcquireTimeout: 10 * time.Second,
		Logs: func(a, _, _ string) *stage.LogConfig {
			return &stage.LogConfig{URL: logs.URL, AccountID: a, Token: "visibly-fake-log-token"}
		},
	})
	require.NoError(t, err)
	srv := httptest.NewServer(s.manager)
	s.url = srv.URL
	t.Cleanup(func() {
		require.NoError(t, s.manager.Close())
		srv.Close()
		require.NoError(t, s.logs.Close())
		logs.Close()
	})
	return s
}

// lines is the number of lines that a step prints, one every 20 ms.
const lines = 25

// submit submits a stage of two steps: the first prints and exports a variable, the
// second prints the variable. Each counts its runs.
func (s *survival) submit() {
	s.submitted++
	id := fmt.Sprintf("survivor-%s-%d", s.token, s.submitted)
	step := func(name, script string) api.StepRequest {
		step := stage.Step{
			ID: name, LogKey: id + "/" + name, Volumes: []*stage.VolumeMount{{Name: "count", Path: "/count"}},
			Run: stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{
				"echo run >> ${DLITE_VOLUME_COUNT:-/count}/" + id + "-" + name + "; " + script,
			}},
		}
		if !s.host {
			step.Image, step.Pull = s.engine.Image, "Never"
		}
		data, err := json.Marshal(step)
		require.NoError(s.t, err)
		return api.StepRequest{ID: name, Data: data}
	}
	data, err := json.Marshal(stage.InitRequest{
		Envs: map[string]string{"TOKEN": "visibly-fake-token"}, Secrets: []string{"visibly-fake-token"},
		Volumes: []*stage.Volume{{Host: &stage.HostVolume{ID: "count", Name: "count", Path: s.count}}},
	})
	require.NoError(s.t, err)
	_, err = s.manager.SubmitStage(s.t.Context(), account, api.StageRequest{ID: id, Init: data, Steps: []api.StepRequest{
		step("first", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); sleep 0.02; done; echo "MADE=$TOKEN-made" > $DRONE_ENV`, lines)),
		step("second", `echo "made $MADE"`),
	}})
	require.NoError(s.t, err)
	s.stages = append(s.stages, id)
}

func (s *survival) log(key string) string {
	var b strings.Builder
	for l := range s.logs.Tail(s.t.Context(), account, key) {
		b.WriteString(l.Out)
	}
	return b.String()
}

// check checks the result of a stage: either all is right, or the step that could not continue
// has the reason. It reports whether all is right.
func (s *survival) check(id string) bool {
	st, err := s.manager.Stage(account, id)
	require.NoError(s.t, err)
	for _, name := range []string{"first", "second"} {
		runs, _ := os.ReadFile(filepath.Join(s.count, id+"-"+name)) // a missing file means no run
		assert.LessOrEqual(s.t, strings.Count(string(runs), "run"), 1, "%s of %s", name, id)
	}
	if st.Status != api.Success {
		text, err := json.Marshal(st)
		require.NoError(s.t, err)
		reasons := []string{driver.ErrLost.Error()}
		if s.harm != nil {
			reasons = append(reasons, "the supervisor")
		}
		known := slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(string(text), reason) })
		assert.True(s.t, known, "%s has none of the reasons %q: %s", id, reasons, text)
		return false
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	assert.Equal(s.t, want.String(), s.log(id+"/first"), "%s: every line, once", id)
	assert.Equal(s.t, "made ******-made\n", s.log(id+"/second"), id)
	return true
}

// Rules T5, L2: stages survive a delegate that is killed at any moment. No step runs twice, no
// line is lost or repeated, the export of a step reaches the next one, and no resource is
// left.
func TestStagesSurviveKillsOfTheDelegate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	newSurvival(t).survive(restarts)
}

// Rules T5, L2: as above, for steps on the host, which a supervisor runs.
func TestHostStagesSurviveKillsOfTheDelegate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	s := newSurvival(t)
	s.host = true
	s.survive(restarts / 2)
}

// resume starts the delegate, unless it runs, and lets it work.
func (s *survival) resume() {
	if s.cmd != nil {
		return
	}
	s.start(orders{Resume: true})
	s.assertBystanders("after a restart")
	s.work()
	s.expect("working")
}

// survive kills the delegate, or does other harm, some times. It checks all stages.
func (s *survival) survive(restarts int) {
	t := s.t
	var all []string
	harm := s.kill
	if s.harm != nil {
		harm = s.harm
	}
	for range restarts {
		s.forgetEnded()
		for len(s.stages) < atOnce {
			s.submit()
			all = append(all, s.stages[len(s.stages)-1])
		}
		s.resume()
		<-time.After(time.Duration(rand.N(1000)) * time.Millisecond)
		harm()
	}
	s.resume()
	s.awaitStageEnds()
	right := 0
	for _, id := range all {
		if s.check(id) {
			right++
		}
	}
	require.Eventually(t, func() bool { return len(s.leftOnEngine(0))+len(s.leftOnRecord(0)) == 0 }, 2*late, 100*time.Millisecond)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.wait()
	s.assertClean("at the end", 0)
	if s.harm == nil {
		assert.GreaterOrEqual(t, right, len(all)*9/10, "a step is lost only when the kill comes between its container's removal and its answer")
	}
	t.Logf("killed %d times with %d stages at once: %d stages, of which %d went on to their right end and %d failed with the reason",
		restarts, atOnce, len(all), right, len(all)-right)
}
