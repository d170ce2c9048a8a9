package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/driver"
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
	case !s.answer.Exited && s.answer.Error == "" && !s.req.Detach && !s.reported():
		return nil, errors.New("the agent's answer does not say that the step has ended")
	}
	return foreignResult(s.answer)
}

// forOurs is a request without what is for other drivers: the caller has the output
// and answers for the step, so the agent gets no token of a log service or a manager.
func forOurs(req *StartStepRequest) *StartStepRequest {
	r := *req
	r.LogConfig, r.LogKey, r.LogDrone, r.StepStatus = nil, "", true, nil
	return &r
}
