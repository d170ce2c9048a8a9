package clienttest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/clienttest"
	"github.com/delegate-io/dlite/internal/clientfaults"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// serveTasks runs a delegate with the handlers of some task types until the test
// ends.
func serveTasks(t *testing.T, srv *clientfaults.Server, routes map[string]task.Handler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := newClient(t, srv)
	r := client.Registration{DelegateName: "stages"}
	for taskType := range routes {
		r.SupportedTaskTypes = append(r.SupportedTaskTypes, taskType)
	}
	d, err := c.Register(ctx, &r)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cursor := ""
		for ctx.Err() == nil {
			p, err := c.Poll(ctx, d.ID, client.PollQuery{Wait: 10 * time.Second, Since: cursor})
			if err != nil {
				continue
			}
			cursor = p.Cursor
			for _, e := range p.Events {
				if got, err := c.Acquire(ctx, d.ID, e); err == nil && got != nil {
					resp, _ := task.Serve(ctx, routes[got.Type], got)
					_ = c.Respond(ctx, d.ID, got, resp)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// stageHandlers answers like a driver: a step fails if its command is "fail",
// and has its command as the output "command".
func stageHandlers(types [3]string, seen *[]string) map[string]task.Handler {
	note := func(id string) { *seen = append(*seen, id) } // tasks run one at a time
	execute := func(_ context.Context, req *task.Request[stage.ExecuteRequest]) (stage.ExecuteResponse, error) {
		note(req.Data.GroupID + "/" + req.Data.ID)
		switch command := req.Data.Run.Command[0]; command {
		case "error":
			return stage.ExecuteResponse{}, errors.New("no such image")
		case "fail":
			return stage.ExecuteResponse{Status: stage.Failure, ExitCode: 3}, nil
		default:
			return stage.ExecuteResponse{Status: stage.Success, OutputVars: map[string]string{"command": command}}, nil
		}
	}
	return map[string]task.Handler{
		types[0]: task.HandlerFunc(func(_ context.Context, req *task.Request[stage.InitRequest]) (stage.InitResponse, error) {
			note("init " + req.Data.TransactionID())
			if req.Data.Envs["FAIL"] != "" {
				return stage.InitResponse{Status: stage.Failure, ErrorMessage: "no disk"}, nil
			}
			return stage.InitResponse{Status: stage.Success}, nil
		}),
		types[1]: task.HandlerFunc(execute),
		types[2]: task.HandlerFunc(func(_ context.Context, req *task.Request[stage.CleanupRequest]) (stage.CleanupResponse, error) {
			note("cleanup " + req.Data.GroupID)
			return stage.CleanupResponse{Status: stage.Success}, nil
		}),
	}
}

func command(c string) stage.Run { return stage.Run{Command: []string{c}} }

func TestRunStageRunsInitStepsAndCleanup(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	var seen []string
	types := [3]string{task.TypeDockerInit, task.TypeDockerExecute, task.TypeDockerCleanup}
	serveTasks(t, srv, stageHandlers(types, &seen))

	got, err := srv.RunStage(t.Context(), clienttest.Stage{
		Init: stage.InitRequest{GroupID: "g"}, Steps: []stage.Step{{Run: command("make")}, {ID: "two", Run: command("test")}},
	})

	require.NoError(t, err)
	assert.Equal(t, stage.Success, got.Status())
	assert.Equal(t, "make", got.Steps["step-1"].OutputVars["command"])
	assert.Equal(t, "test", got.Steps["two"].OutputVars["command"])
	assert.Equal(t, []string{"init g", "g/step-1", "g/two", "cleanup g"}, seen)
}

func TestRunStageCleansUpAfterAFailure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		init  stage.InitRequest
		steps []stage.Step
		err   string
		seen  []string
	}{
		"failed step": {steps: []stage.Step{{ID: "a", Run: command("fail")}, {ID: "b", Run: command("x")}}, seen: []string{"init g", "g/a", "cleanup g"}},
		"step without a result": {
			steps: []stage.Step{{ID: "a", Run: command("error")}, {ID: "b", Run: command("x")}},
			err:   "running step a: the delegate answered FAILED: no such image", seen: []string{"init g", "g/a", "cleanup g"},
		},
		"failed init": {init: stage.InitRequest{Envs: map[string]string{"FAIL": "1"}}, steps: []stage.Step{{Run: command("x")}}, seen: []string{"init g", "cleanup g"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, _ := newServer(t)
			var seen []string
			types := [3]string{task.TypeLocalInit, task.TypeLocalExecute, task.TypeLocalCleanup}
			serveTasks(t, srv, stageHandlers(types, &seen))
			tc.init.GroupID = "g"

			got, err := srv.RunStage(t.Context(), clienttest.Stage{Types: types, Init: tc.init, Steps: tc.steps})

			if tc.err == "" {
				require.NoError(t, err)
				assert.Equal(t, stage.Failure, got.Status())
			} else {
				assert.ErrorContains(t, err, tc.err)
			}
			assert.Equal(t, tc.seen, seen)
			assert.Equal(t, stage.Success, got.Cleanup.Status)
		})
	}
}

// The types of protocol v1 for VMs carry their payloads in envelopes.
func TestRunStagePutsPayloadsIntoEnvelopes(t *testing.T) {
	t.Parallel()
	srv, _ := newServer(t)
	var seen []string
	serveTasks(t, srv, map[string]task.Handler{
		task.TypeDliteVMInit: task.HandlerFunc(func(_ context.Context, req *task.Request[envelope.Init]) (stage.InitResponse, error) {
			in := req.Data.Init()
			seen = append(seen, in.TransactionID(), in.Network.Options[stage.PoolOption], req.Data.Setup.Context.AccountID)
			return stage.InitResponse{Status: stage.Success}, nil
		}),
		task.TypeDliteVMExecuteV2: task.HandlerFunc(func(_ context.Context, req *task.Request[envelope.Execute]) (stage.ExecuteResponse, error) {
			step := req.Data.Step()
			seen = append(seen, step.GroupID, step.ID)
			return stage.ExecuteResponse{Status: stage.Success}, nil
		}),
		task.TypeDliteVMCleanup: task.HandlerFunc(func(_ context.Context, req *task.Request[envelope.Cleanup]) (stage.CleanupResponse, error) {
			seen = append(seen, req.Data.StageRuntimeID)
			return stage.CleanupResponse{Status: stage.Success}, nil
		}),
	})

	got, err := srv.RunStage(t.Context(), clienttest.Stage{
		Types: [3]string{task.TypeDliteVMInit, task.TypeDliteVMExecuteV2, task.TypeDliteVMCleanup},
		Init:  stage.InitRequest{GroupID: "g", Network: stage.Network{Options: map[string]string{stage.PoolOption: "linux"}}},
		Steps: []stage.Step{{ID: "a"}},
	})

	require.NoError(t, err)
	assert.Equal(t, stage.Success, got.Status())
	assert.Equal(t, []string{"g", "linux", "clienttest", "g", "a", "g"}, seen)
}

func TestRunStageEndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv, raw := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := srv.RunStage(ctx, clienttest.Stage{})
		ended <- err
	}()
	d := raw.register()
	require.Eventually(t, func() bool { return len(raw.pollV1(d)) == 1 }, 10*time.Second, time.Millisecond)
	raw.acquireV1(d, raw.pollV1(d)[0])
	cancel()

	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Len(t, raw.pollV1(d), 1, "the cleanup was submitted")
}

func TestStatusOfAStageIsThatOfItsWorstPart(t *testing.T) {
	t.Parallel()
	for want, steps := range map[stage.Status]map[string]stage.ExecuteResponse{
		stage.Success: {"a": {Status: stage.Success}, "b": {Status: stage.Skipped}},
		stage.Failure: {"a": {Status: stage.Success}, "b": {Status: stage.Failure}},
		stage.Timeout: {"a": {Status: stage.Timeout}},
	} {
		r := clienttest.StageResult{
			Init: stage.InitResponse{Status: stage.Success}, Steps: steps, Cleanup: stage.CleanupResponse{Status: stage.Success},
		}
		assert.Equal(t, want, r.Status())
		r.Cleanup.Status = stage.Failure
		if want != stage.Timeout {
			assert.Equal(t, stage.Failure, r.Status())
		}
	}
}

// A middleware sees the requests, and can refuse them.
func TestMiddlewareGoesInFrontOfTheCalls(t *testing.T) {
	t.Parallel()
	var calls []string
	plain := clienttest.Config{Prefix: "/p", Middleware: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			call, delegate, id := clienttest.CallOf(r)
			calls = append(calls, call, delegate, id)
			if call == "acquire" {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}.NewServer()
	defer plain.Close()
	raw := newRaw(t, plain)
	d := raw.register()

	assert.Equal(t, http.StatusTeapot, raw.do("GET /api/executions/a%2Fb/request?delegateId="+d, "").status)
	assert.Equal(t, []string{"register", "", "", "acquire", d, "a/b"}, calls)
	assert.Equal(t, 2, plain.Count())
}
