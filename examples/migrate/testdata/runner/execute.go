package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"time"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/delegate"
	"github.com/wings-software/dlite/httphelper"
)

// executeHandler runs a step.
type executeHandler struct{ c *command }

// The claims of the tokens for agents.
const (
	audience = "audience"
	issuer   = "issuer"
)

func (t *executeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &executeRequest{}
	task, ok := decodeTask(w, r, req)
	if !ok {
		return
	}
	if err := req.validate(); err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	open, ok := t.c.stages.find(req.ExecuteVMRequest.StageRuntimeID)
	if !ok {
		httphelper.WriteJSON(w, failed(errUnknownStage), http.StatusOK)
		return
	}
	if err := t.addStatusConfig(task, &req.ExecuteVMRequest.Step); err != nil {
		httphelper.WriteInternalError(w, err)
		return
	}
	began := time.Now()
	resp := t.execute(r.Context(), open, &req.ExecuteVMRequest.Step)
	resp.DelegateMetaInfo = t.c.metaInfo(task)
	t.c.metrics.stepEnded(open.Pool, resp.CommandExecutionStatus, time.Since(began))
	log.Printf("task %s: the step %s ended with %s", task.ID, req.ExecuteVMRequest.Step.ID, resp.CommandExecutionStatus)
	httphelper.WriteJSON(w, resp, http.StatusOK)
}

// addStatusConfig gives the agent the address and the token for its own reports.
func (t *executeHandler) addStatusConfig(task *client.Task, step *stepSpec) error {
	if !task.RunnerResponse {
		return nil
	}
	m := &t.c.env.Manager
	token, err := delegate.Token(audience, issuer, m.AccountID, m.AccountSecret, m.TokenExpiry)
	if err != nil {
		return fmt.Errorf("could not make a token for the agent: %w", err)
	}
	step.Status = &statusConfig{
		Endpoint: m.Endpoint, AccountID: m.AccountID, Token: token, TaskID: task.ID, DelegateID: task.DelegateInfo.ID, Runner: task.RunnerResponse,
	}
	return nil
}

func (t *executeHandler) execute(ctx context.Context, open *stage, step *stepSpec) vmResponse {
	in, err := t.c.pools.find(open.Pool, open.Instance)
	if err != nil {
		return failed(err)
	}
	envs := maps.Clone(open.Envs)
	if envs == nil {
		envs = map[string]string{}
	}
	maps.Copy(envs, step.Envs)
	limit := t.c.env.Limits.Timeout
	if step.Timeout > 0 {
		limit = min(limit, time.Duration(step.Timeout)*time.Second)
	}
	if !step.Detach {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	t.c.stages.addStep(open.ID, step.ID)
	out := t.c.logs.writer(open.ID, step.ID)
	out.hide(append(append([]string{}, open.Secrets...), step.Secrets...))
	result, err := in.driver.run(ctx, in, step, envs, out)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return vmResponse{CommandExecutionStatus: timeout, ErrorMessage: fmt.Sprintf("the step took longer than %s", limit)}
	case err != nil:
		return failed(err)
	case result.ExitCode != 0:
		return vmResponse{
			CommandExecutionStatus: failure, ErrorMessage: fmt.Sprintf("exit status %d", result.ExitCode), ExitCode: result.ExitCode, OutputVars: result.Outputs,
		}
	}
	return vmResponse{CommandExecutionStatus: success, OutputVars: result.Outputs, IPAddress: in.Address}
}
