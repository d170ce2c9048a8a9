package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/delegate-io/dlite/driver"
)

// endingError is the agent's error of a step that has no result.
type endingError struct {
	text    string
	timeout bool
}

func (e *endingError) Error() string { return e.text }

// Unwrap returns [context.DeadlineExceeded] for a time-out.
func (e *endingError) Unwrap() error {
	if e.timeout {
		return context.DeadlineExceeded
	}
	return nil
}

// result converts the agent's answer. The caller waits for answered first.
func (s *session) result() (*driver.Result, error) {
	switch {
	case s.pollErr != nil:
		if e := (*Error)(nil); errors.As(s.pollErr, &e) && e.Status == http.StatusBadRequest && s.started {
			if !s.begins {
				return nil, driver.ErrNotBegun
			}
			return nil, fmt.Errorf("%w: the agent does not know it any more (%w)", driver.ErrLost, s.pollErr)
		}
		return nil, s.pollErr
	case s.answer.Failure != nil:
		return nil, &endingError{text: s.answer.Failure.Error, timeout: s.answer.Failure.Timeout}
	case s.answer.Result != nil:
		return s.answer.Result, nil
	case s.own:
		return nil, errors.New("the agent's answer has neither a result nor a failure")
	case !s.answer.Exited && s.answer.Error == "" && !s.req.Detach && !s.reported():
		return nil, errors.New("the agent's answer does not report the end of the step")
	}
	return foreignResult(s.answer)
}

// ownRequest returns the request for an agent of this package. The caller receives the output and
// reports the step, so the request has no token of a log service or a manager.
func ownRequest(req *StartStepRequest) *StartStepRequest {
	r := *req
	r.LogConfig, r.LogKey, r.LogDrone, r.StepStatus = nil, "", true, nil
	return &r
}
