package agent_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/internal/testbed"
)

// docs/protocol.md, section 5: the agent runs a stage for a foreign driver.
func TestAForeignDriverRunsAStage(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{Version: "1.2.3"})
	_, health, err := f.try(t.Context(), http.MethodGet, "/healthz?perform_dns_lookup=true&connectivity_check_duration_seconds=1", "")
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":"1.2.3","ok":true,"agent":"dlite"}`, health)

	f.setup(`,"files":[{"path":"from-setup","mode":420,"data":"hello"}],"of_the_future":[{}]`)
	assert.JSONEq(t, `{}`, f.ok("/start_step", step("one", `cat from-setup; echo " $OF_SETUP"; echo A=1 >> $DRONE_OUTPUT; echo E=2 >> $DRONE_ENV
		printf '{}' > $PLUGIN_ARTIFACT_FILE; X=3; echo S=hunter2 >> $HARNESS_OUTPUT_SECRET_FILE`, `,"output_vars":["X"],"log_drone":true,"stage_runtime_id":"sr"`)))
	assert.JSONEq(t, `{"exited":true,"outputs":{"A":"1","X":"3"},"envs":{"E":"2"},"artifact":"e30=","outputV2":[
		{"key":"A","value":"1","type":"STRING"},{"key":"X","value":"3","type":"STRING"},{"key":"S","value":"hunter2","type":"SECRET"}]}`, f.poll("one"))
	assert.Equal(t, "hello 1\n", f.ok("/stream_output", `{"id":"one"}`))
	assert.Equal(t, "lo 1\n", f.ok("/stream_output", `{"id":"one","offset":3}`))

	// DRONE_ENV reaches the later steps of the same stage_runtime_id without the driver.
	f.ok("/start_step", step("two", `echo ${E-none}`, `,"stage_runtime_id":"sr"`))
	f.ok("/start_step", step("three", `echo ${E-none}; exit 3`, ``))
	assert.JSONEq(t, `{"exited":true}`, f.poll("two"))
	assert.JSONEq(t, `{"exited":true,"exit_code":3,"error":"exit status 3"}`, f.poll("three"))
	assert.Equal(t, "2\n", f.ok("/stream_output", `{"id":"two"}`))
	assert.Equal(t, "none\n", f.ok("/stream_output", `{"id":"three"}`))

	assert.JSONEq(t, `{}`, f.ok("/suspend", `{"log_key":"k","labels":{}}`))
	for range 2 {
		assert.JSONEq(t, `{}`, f.ok("/destroy", `{"log_drone":true,"stage_runtime_id":"sr"}`))
	}
}

// docs/protocol.md, section 5: on a machine of one stage a foreign driver names any path of the
// machine, creates no host volume itself, and starts steps of the kind RunTestsV2.
func TestAForeignDriverUsesTheWholeMachine(t *testing.T) {
	t.Parallel()
	work, memory := testbed.StageFolders(t)
	d, err := host.New(host.Config{WorkDir: work, MemoryDir: memory, WholeMachine: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	f := newAgentOn(t, d, agent.Config{})
	root := t.TempDir()
	f.setup(`,"volumes":[{"host":{"id":"v","name":"v","path":"` + root + `/volume"}}],"files":[{"path":"` + root + `/a/setup","mode":384,"data":"hello"}]`)
	f.ok("/start_step", strings.Replace(step("one", `cat "$ROOT/a/setup" "$ROOT/b/step"; ls -d "$ROOT/volume" "$HARNESS_SCRATCH_DIR"
		echo A=1 >> "$DRONE_OUTPUT"; echo S=visibly-fake >> "$HARNESS_OUTPUT_SECRET_FILE"; [ "$DRONE_OUTPUT" = "$ROOT/c/out" ]`,
		`,"files":[{"path":"`+root+`/b/step","data":" world\n"}],"output_var_file":"`+root+`/c/out","secret_var_file":"`+root+`/d/secret","scratch_dir":"`+root+`/scratch"`),
		`"kind":"Run","environment":{}`, `"kind":"RunTestsV2","environment":{"ROOT":"`+root+`"}`, 1))
	assert.JSONEq(t, `{"exited":true,"outputs":{"A":"1"},"outputV2":[
		{"key":"A","value":"1","type":"STRING"},{"key":"S","value":"visibly-fake","type":"SECRET"}]}`, f.poll("one"))
	assert.Equal(t, "hello world\n"+root+"/scratch\n"+root+"/volume\n", f.ok("/stream_output", `{"id":"one"}`))
	assert.NoFileExists(t, root+"/d/secret", "the next step must not find it")
}

// docs/protocol.md, section 5: foreign drivers send an empty log_config with each step and mean the log
// service of the setup.
func TestAnEmptyLogOfAStepMeansTheLogOfTheSetup(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		got.WriteString(r.Method + " " + r.URL.Query().Get("key") + " " + r.Header.Get("X-Harness-Token") + " " + string(b) + "\n")
	}))
	defer server.Close()
	f := newAgent(t, agent.Config{})
	f.setup(`,"log_config":{"account_id":"acme","url":"` + server.URL + `","token":"visibly-fake-token","indirect_upload":true}`)
	f.ok("/start_step", step("one", "echo hello", `,"log_key":"the-key","log_config":{}`))
	assert.JSONEq(t, `{"exited":true}`, f.poll("one"))
	mu.Lock()
	defer mu.Unlock()
	assert.Contains(t, got.String(), "POST the-key visibly-fake-token")
	assert.Contains(t, got.String(), "hello")
}

// docs/protocol.md, section 5: a step that is started twice runs once, and every poll is
// answered, also after the end.
func TestAStepIsStartedOnceAndEveryPollIsAnswered(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.setup("")
	body := step("once", `echo ran >> file; cat file; while [ ! -e go ]; do sleep 0.05; done; exit 4`, "")
	for range 3 {
		f.ok("/start_step", body)
	}
	out := f.stream(`{"id":"once"}`)
	out.until(t, "ran\n")
	var polls sync.WaitGroup
	for range 5 {
		polls.Go(func() {
			_, answer, err := f.try(t.Context(), http.MethodPost, "/poll_step", `{"id":"once"}`)
			assert.NoError(t, err)
			assert.Contains(t, answer, `"exit_code":4`)
		})
	}
	// A canceled poll takes no answer from other polls.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := f.try(ctx, http.MethodPost, "/poll_step", `{"id":"once"}`)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	f.ok("/start_step", step("go", "touch go", ""))
	polls.Wait()
	f.ok("/start_step", body)
	assert.JSONEq(t, `{"exited":true,"exit_code":4,"error":"exit status 4"}`, f.poll("once"))
	assert.Equal(t, "ran\n", out.rest(t))
}

// docs/protocol.md, section 5: the agent refuses calls with the texts of the protocol.
func TestInvalidCallsAreRefused(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{MaxBody: 4096})
	refused := func(path, body, message string, want int) {
		t.Helper()
		status, answer := f.post(path, body)
		assert.Equal(t, want, status, path)
		assert.Contains(t, answer, `"error_msg":"`, path)
		assert.Contains(t, answer, message, path)
	}
	refused("/start_step", step("x", "true", ""), "setup", 400)
	refused("/poll_step", `{"id":"x"}`, "Step has not started", 400)
	f.setup("")
	refused("/setup", `{"network":{"id":"another"}}`, "destroy", 400)
	f.setup("") // the same setup again
	refused("/poll_step", `{"id":"x"}`, "Step has not started", 400)
	refused("/start_step", `{"run":{}}`, "id", 400)
	refused("/start_step", `{"id":5}`, "decode the request", 400)
	refused("/start_step", `{"id":`, "decode the request", 400)
	refused("/start_step", step("x", strings.Repeat("x", 5000), ""), "too large", 400)
	refused("/stream_output", `{"id":"x","offset":-1}`, "negative", 400)
	refused("/no_such_call", ``, "unknown call", 404)
	status, _, err := f.try(t.Context(), http.MethodGet, "/setup", "")
	require.NoError(t, err)
	assert.Equal(t, 405, status)
}

// docs/protocol.md, section 5: exit code 255 means that the step has no exit code.
func TestInternalErrorsAndTimeoutsAreExitCode255(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.setup(`,"secrets":["visibly-fake-secret"]`)
	f.ok("/start_step", step("late", "sleep 600", `,"timeout":1`))
	assert.JSONEq(t, `{"exited":true,"exit_code":255,"error":"context deadline exceeded"}`, f.poll("late"))
	f.ok("/start_step", step("none", "true", `,"working_dir":"/no/visibly-fake-secret"`))
	none := f.poll("none")
	assert.Contains(t, none, `"exit_code":255`)
	assert.Contains(t, none, "working directory")
	assert.NotContains(t, none, "visibly-fake-secret")
	f.ok("/start_step", step("large", `head -c 3000000 /dev/zero > $DRONE_OUTPUT`, ""))
	assert.Contains(t, f.poll("large"), `"exit_code":255`, "lost output variables are a failure")
}

// endedDriver returns the same result for every step.
type endedDriver struct {
	brokenDriver
	res *driver.Result
}

func (d *endedDriver) Execute(context.Context, *driver.Environment, *driver.Step, io.Writer, driver.Ledger) (*driver.Result, error) {
	return d.res, nil
}

// docs/protocol.md, section 5: foreign drivers treat an answer without an error as a success.
func TestEveryFailureHasAnError(t *testing.T) {
	t.Parallel()
	f := newAgentOn(t, &endedDriver{brokenDriver{init: fine, cleanup: fine}, &driver.Result{ExitCode: 137, OOMKilled: true}}, agent.Config{})
	f.setup("")
	f.ok("/start_step", step("oom", "true", ""))
	assert.JSONEq(t, `{"exited":true,"exit_code":255,"oom_killed":true,"error":"the step ran out of memory"}`, f.poll("oom"))
}

// docs/protocol.md, section 5: a detached step is answered at once, without exited. Its
// output continues until the destroy.
func TestADetachedStepIsAnsweredAtOnceAndStreamsUntilTheDestroy(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.setup("")
	f.ok("/start_step", step("service", "echo up; while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600", `,"detach":true`))
	assert.JSONEq(t, `{}`, f.poll("service"))
	out := f.stream(`{"id":"service"}`)
	out.until(t, "up\n")
	f.ok("/start_step", step("go", "touch go", ""))
	out.until(t, "went\n")
	f.ok("/destroy", `{}`)
	assert.Equal(t, "up\nwent\n", out.rest(t))
	status, _ := f.post("/poll_step", `{"id":"service"}`)
	assert.Equal(t, 400, status)
}

// Some drivers request the output of a step just before they start it.
func TestOutputMayBeRequestedBeforeTheStepStarts(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.setup("")
	got := make(chan string, 1)
	go func() {
		_, answer, _ := f.try(t.Context(), http.MethodPost, "/stream_output", `{"id":"soon"}`)
		got <- answer
	}()
	f.ok("/start_step", step("other", "echo other", ""))
	f.poll("other")
	f.ok("/start_step", step("soon", "echo soon", ""))
	assert.Equal(t, "soon\n", <-got)
}

// Rule T3: a destroy stops running steps and answers the callers that wait for them. Then a
// new stage may start.
func TestADestroyEndsRunningSteps(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.setup("")
	f.ok("/start_step", step("long", "echo up; sleep 600", ""))
	out := f.stream(`{"id":"long"}`)
	out.until(t, "up\n")
	polled := make(chan string, 1)
	go func() {
		_, answer, _ := f.try(t.Context(), http.MethodPost, "/poll_step", `{"id":"long"}`)
		polled <- answer
	}()
	begin := time.Now()
	f.ok("/destroy", "")
	assert.Less(t, time.Since(begin), 20*time.Second)
	assert.Equal(t, "up\n", out.rest(t))
	if answer := <-polled; !strings.Contains(answer, "has not started") { // the poll may arrive after the destroy
		assert.Contains(t, answer, `"exit_code":255`)
		assert.Contains(t, answer, "destroyed")
	}
	f.setup("")
	f.ok("/start_step", step("long", "echo again", "")) // the ids are unique in a stage only
	f.poll("long")
	assert.Equal(t, "again\n", f.ok("/stream_output", `{"id":"long"}`))
}

// An addition to the protocol: a step that is stopped before its start never starts, because
// the request that starts it may be delayed.
func TestAStoppedStepDoesNotStart(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	f.ok("/stop_step", `{"id":"x"}`) // without a setup it has no effect
	f.setup("")
	f.ok("/stop_step", `{"id":"x"}`)
	status, answer := f.post("/start_step", step("x", "echo RAN", ""))
	assert.Equal(t, 400, status)
	assert.Contains(t, answer, "stopped")
	f.ok("/start_step", step("y", "sleep 600", ""))
	f.ok("/stop_step", `{"id":"y","cause":"the test aborts it"}`)
	assert.Contains(t, f.poll("y"), "the test aborts it")
	f.ok("/stop_step", `{"id":"y"}`)
}

// brokenDriver fails in all ways in which a driver can fail.
type brokenDriver struct {
	init, execute, cleanup func(ctx context.Context) error
	left                   int    // number of cleanups that leave a resource
	says                   string // of the init
}

func (*brokenDriver) Infra() string { return "broken" }

func (d *brokenDriver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	_, _ = io.WriteString(env.Log, d.says)
	if err := l.Record(ctx, driver.Resource{Kind: "thing", ID: "1"}); err != nil {
		return err
	}
	return d.init(ctx)
}

func (d *brokenDriver) Execute(ctx context.Context, _ *driver.Environment, _ *driver.Step, _ io.Writer, _ driver.Ledger) (*driver.Result, error) {
	return nil, d.execute(ctx)
}

func (d *brokenDriver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	if d.left > 0 {
		d.left--
		return rs, nil
	}
	return nil, d.cleanup(ctx)
}

func fine(context.Context) error { return nil }

// A panic of a driver is a failure of the step. It must not become exit code 0, or end the
// agent.
func TestPanicsOfADriverAreFailures(t *testing.T) {
	t.Parallel()
	d := &brokenDriver{init: fine, cleanup: fine, execute: func(context.Context) error { panic("visibly-fake-secret is the reason") }}
	f := newAgentOn(t, d, agent.Config{})
	f.setup(`,"secrets":["visibly-fake-secret"]`)
	f.ok("/start_step", step("x", "true", ""))
	got := f.poll("x")
	assert.Contains(t, got, `"exit_code":255`)
	assert.Contains(t, got, "panicked: ****** is the reason")
	assert.NotContains(t, got, "visibly-fake-secret")
	d.execute = fine // no result without an error is a failure too
	f.ok("/start_step", step("y", "true", ""))
	assert.Contains(t, f.poll("y"), `"exit_code":255`)
	d.cleanup = func(context.Context) error { panic("at the end") }
	status, _ := f.post("/destroy", "")
	assert.Equal(t, 500, status)
	d.cleanup = fine
	f.ok("/destroy", "")
}

// Rule T3: a failed init is cleaned up, its log is returned, and the setup may be repeated.
func TestAFailedSetupIsCleanedUpAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	cleaned := 0
	d := &brokenDriver{
		says:    "about to init with visibly-fake-secret\n",
		init:    func(context.Context) error { return errors.New("no disk for visibly-fake-secret") },
		cleanup: func(context.Context) error { cleaned++; return nil },
	}
	f := newAgentOn(t, d, agent.Config{})
	for want := 1; want <= 2; want++ {
		status, answer := f.post("/setup", `{"network":{"id":"n"},"secrets":["visibly-fake-secret"]}`)
		assert.Equal(t, 500, status)
		assert.JSONEq(t, `{"error_msg":"no disk for ******","log":"about to init with ******\n"}`, answer)
		assert.Equal(t, want, cleaned)
	}
	d.init, d.says = fine, ""
	f.setup("")
}

// Rule T3: a failed cleanup is reported and may be repeated.
func TestAnIncompleteDestroyFailsAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	d := &brokenDriver{init: fine, cleanup: fine, left: 2}
	f := newAgentOn(t, d, agent.Config{})
	f.setup("")
	for range 2 {
		status, answer := f.post("/destroy", "")
		assert.Equal(t, 500, status)
		assert.Contains(t, answer, "1 resources could not be removed")
	}
	f.ok("/destroy", "")
	assert.Zero(t, d.left)
}

// Rule T3: a stage whose destroy has failed accepts no steps, and the next setup does not
// reuse it.
func TestASetupDuringADestroyStartsAnotherStage(t *testing.T) {
	t.Parallel()
	d := &brokenDriver{init: fine, execute: fine, cleanup: fine, left: 1}
	f := newAgentOn(t, d, agent.Config{})
	f.setup("")
	status, _ := f.post("/destroy", "")
	require.Equal(t, 500, status)
	f.setup("")
	f.ok("/start_step", step("x", "true", ""))
}

// Rule S3: the errors of a destroy are masked.
func TestTheErrorOfADestroyIsMasked(t *testing.T) {
	t.Parallel()
	d := &brokenDriver{init: fine, cleanup: func(context.Context) error { return errors.New("cannot remove /tmp/visibly-fake-secret") }}
	f := newAgentOn(t, d, agent.Config{})
	f.setup(`,"secrets":["visibly-fake-secret"]`)
	status, answer := f.post("/destroy", "")
	assert.Equal(t, 500, status)
	assert.Contains(t, answer, "cannot remove /tmp/******")
	d.cleanup = fine
	f.ok("/destroy", "")
}

// Rule T3: a destroy may arrive before its setup has ended.
func TestADestroyDuringASetupEndsIt(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	d := &brokenDriver{cleanup: fine, init: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}}
	f := newAgentOn(t, d, agent.Config{})
	done := make(chan string, 1)
	go func() {
		_, answer, _ := f.try(t.Context(), http.MethodPost, "/setup", `{}`)
		done <- answer
	}()
	<-begun
	f.ok("/destroy", "")
	assert.Contains(t, <-done, "destroyed")
}
