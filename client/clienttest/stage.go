package clienttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Stage is a stage for [Server.RunStage].
type Stage struct {
	// Types are the task types of init, execute and cleanup. The zero value means
	// the CI_DOCKER types. Payloads of the DLITE_CI_VM types travel in their
	// envelopes.
	Types [3]string
	// Init is the payload of the init. An empty GroupID becomes a generated id.
	Init stage.InitRequest
	// Steps run one after the other. A step without an id gets "step-1", "step-2",
	// and so on.
	Steps []stage.Step
	// Secrets are the secret tasks of the init and of every step (protocol v2).
	Secrets []*task.Task
}

// StageResult holds the answers to the tasks of a stage.
type StageResult struct {
	Init stage.InitResponse
	// Steps holds the answers by step id. Steps that did not run are absent.
	Steps   map[string]stage.ExecuteResponse
	Cleanup stage.CleanupResponse
}

// Status returns Success if all parts of the stage succeeded. Otherwise it
// returns Failure, or Timeout if a step timed out.
func (r *StageResult) Status() stage.Status {
	status := stage.Success
	for _, s := range r.Steps {
		switch s.Status {
		case stage.Success, stage.Skipped:
		case stage.Timeout:
			return stage.Timeout
		default:
			status = stage.Failure
		}
	}
	if r.Init.Status != stage.Success || r.Cleanup.Status != stage.Success {
		return stage.Failure
	}
	return status
}

// RunStage submits the init of a stage, its steps and its cleanup, and waits for
// each answer. A delegate that supports the init's type runs the whole stage.
//
// If the init or a step fails, RunStage skips the remaining steps and submits
// the cleanup. A failed step is part of the result and no error. The error joins
// the tasks whose code is not OK with the error of the context. RunStage submits
// the cleanup also if the context has ended, but does not wait for it then.
func (s *Server) RunStage(ctx context.Context, st Stage) (*StageResult, error) {
	if st.Types == ([3]string{}) {
		st.Types = [3]string{task.TypeDockerInit, task.TypeDockerExecute, task.TypeDockerCleanup}
	}
	if st.Init.TransactionID() == "" {
		st.Init.GroupID = s.newID("stage")
	}
	run := stageRun{server: s, stage: st, id: st.Init.TransactionID()}
	result := &StageResult{Steps: map[string]stage.ExecuteResponse{}}

	init := s.Submit(run.task(st.Types[0], run.initPayload(), st.Secrets))
	err := wait(ctx, "the init", init, &result.Init)
	if init.Owner() == "" {
		return result, err // no delegate has anything to clean up
	}
	run.delegate = init.Owner()
	if err == nil && result.Init.Status == stage.Success {
		err = run.steps(ctx, result)
	}
	cleanup := s.SubmitTo(run.delegate, run.task(st.Types[2], run.cleanupPayload(), nil))
	if ctx.Err() != nil {
		return result, err
	}
	return result, errors.Join(err, wait(ctx, "the cleanup", cleanup, &result.Cleanup))
}

// stageRun is one call of RunStage.
type stageRun struct {
	server   *Server
	stage    Stage
	id       string // of the transaction
	delegate string // id
}

// steps runs the steps until one of them fails.
func (r *stageRun) steps(ctx context.Context, result *StageResult) error {
	for i, step := range r.stage.Steps {
		step.ID = cmp.Or(step.ID, fmt.Sprintf("step-%d", i+1))
		var answer stage.ExecuteResponse
		sub := r.server.SubmitTo(r.delegate, r.task(r.stage.Types[1], r.stepPayload(step), r.stage.Secrets))
		if err := wait(ctx, "step "+step.ID, sub, &answer); err != nil {
			return err
		}
		result.Steps[step.ID] = answer
		if answer.Status != stage.Success {
			return nil
		}
	}
	return nil
}

func (r *stageRun) task(taskType string, payload any, secrets []*task.Task) *task.Task {
	data, err := json.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("clienttest: encoding a stage: %v", err)) // these types always encode
	}
	return &task.Task{Type: taskType, Data: data, Secrets: secrets}
}

// inEnvelope reports whether the stage's payloads travel in envelopes.
func (r *stageRun) inEnvelope() bool { return taskkind.Enveloped(r.stage.Types[0]) }

func (r *stageRun) initPayload() any {
	if !r.inEnvelope() {
		return r.stage.Init
	}
	var e envelope.Init
	e.Setup.ID, e.Setup.Setup = r.id, r.stage.Init
	e.Setup.PoolID = r.stage.Init.Network.Options[stage.PoolOption]
	e.Setup.Context.AccountID = r.server.Account
	return e
}

func (r *stageRun) stepPayload(step stage.Step) any {
	request := stage.ExecuteRequest{Step: step, GroupID: r.id}
	if !r.inEnvelope() {
		return request
	}
	return envelope.Execute{Execute: envelope.Step{StageRuntimeID: r.id, Start: request}}
}

func (r *stageRun) cleanupPayload() any {
	if !r.inEnvelope() {
		return stage.CleanupRequest{GroupID: r.id}
	}
	return envelope.Cleanup{StageRuntimeID: r.id}
}

// wait waits for the answer to a task and decodes its data.
func wait(ctx context.Context, what string, sub *Submission, data any) error {
	resp, err := sub.Wait(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("running %s: %w", what, err)
	case resp.Code != task.OK:
		return fmt.Errorf("running %s: the delegate answered %s: %s", what, resp.Code, resp.Error)
	}
	if err := json.Unmarshal(resp.Data, data); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", what, err)
	}
	return nil
}
