package agentclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/vm/agent"
	"github.com/delegate-io/dlite/task/stage"
)

// endingError is what an agent says of a step that has no result.
type endingError struct {
	text    string
	timeout bool
}

func (e *endingError) Error() string { return e.text }

// Unwrap is [context.DeadlineExceeded] for a time-out.
func (e *endingError) Unwrap() error {
	if e.timeout {
		return context.DeadlineExceeded
	}
	return nil
}

// ending is the step's result, from what the agent said. It is called after answered.
func (s *session) ending() (*driver.Result, error) {
	switch {
	case s.pollErr != nil:
		if e := (*Error)(nil); errors.As(s.pollErr, &e) && e.Status == http.StatusBadRequest && s.started {
			if !s.begins {
				return nil, driver.ErrNotBegun
			}
			return nil, fmt.Errorf("%w: the agent has forgotten it (%w)", driver.ErrLost, s.pollErr)
		}
		return nil, s.pollErr
	case s.answer.Failure != nil:
		return nil, &endingError{text: s.answer.Failure.Error, timeout: s.answer.Failure.Timeout}
	case s.answer.Result != nil:
		return s.answer.Result, nil
	case s.ours:
		return nil, errors.New("the agent's answer has neither a result nor a failure")
	}
	return foreignResult(s.answer)
}

// foreignInternalError is the exit code by which other agents say that something went
// wrong that is no step's end; so may a step.
const foreignInternalError = 255

// foreignResult reads the answer of another agent (PROTOCOL 5).
func foreignResult(a *agent.PollStepResponse) (*driver.Result, error) {
	if a.ExitCode == foreignInternalError && a.Error != "" && !a.OOMKilled && !strings.Contains(a.Error, "exit status 255") {
		return nil, &endingError{text: a.Error, timeout: strings.Contains(a.Error, context.DeadlineExceeded.Error())}
	}
	res := &driver.Result{
		ExitCode: a.ExitCode, OOMKilled: a.OOMKilled, Detached: !a.Exited,
		Outputs: maps.Clone(a.Outputs), Env: a.Envs, Artifact: a.Artifact,
	}
	for _, o := range a.OutputV2 {
		to := &res.Outputs
		if o.Type == stage.OutputSecret {
			to = &res.Secrets
			delete(res.Outputs, o.Key)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[o.Key] = o.Value
	}
	return res, nil
}

// forOurs is a request without what is for other drivers: the caller has the output
// and answers for the step, so the agent gets no token of a log service or a manager.
func forOurs(req *agent.StartStepRequest) *agent.StartStepRequest {
	r := *req
	r.LogConfig, r.LogKey, r.LogDrone, r.StepStatus = nil, "", true, nil
	return &r
}

// forOthers is a request as another agent wants it. The output comes here, unless the
// step hands something on, which such an agent tells only of steps whose output goes to
// a log service.
func forOthers(req *agent.StartStepRequest) *agent.StartStepRequest {
	r := *req
	r.ID, r.Key = req.StepKey(), ""
	if r.Environment == nil {
		r.Environment = map[string]string{} // it hangs without one
	}
	if r.Kind == "" {
		r.Kind = "Run"
	}
	if r.StepStatus == nil {
		r.StageRuntimeID = "" // nobody would ever be told of its end
	}
	r.ProcessConfig = &stage.ProcessConfig{KillProcessOnContextCancel: true}
	r.LogDrone = len(r.OutputVars) == 0 && len(r.Outputs) == 0 && r.OutputVarFile == "" && r.SecretVarFile == "" && r.StepStatus == nil
	return &r
}
