package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// taskReport is TaskResponse or RunnerTaskResponse, which differ in what JSON makes
// of Data. The id is the one in the path.
type taskReport struct {
	ID    string    `json:"id"`
	Type  string    `json:"type"`
	Code  task.Code `json:"code"`
	Error string    `json:"error,omitempty"`
	Data  any       `json:"data"`
}

// report tells the manager that the step has ended, where the manager has asked the
// agent for it: the delegate has answered long ago (PROTOCOL 1, distributed
// execute). It is tried until the manager has it, for a bounded time.
func (s *step) report() {
	st := s.req.StepStatus
	if st == nil || s.req.StageRuntimeID == "" || st.Endpoint == "" {
		return
	}
	a := s.tx.agent
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), a.cfg.ReportTimeout)
	defer cancel()
	if err := s.send(ctx, st); err != nil {
		a.cfg.Log.Error().Str("step", s.req.ID).Str("task", st.TaskID).Str("error", s.tx.masks.Mask(err.Error())).
			Msg("the manager was not told that a step has ended")
	}
}

func (s *step) send(ctx context.Context, st *stage.StepStatus) error {
	path, body, err := s.newReport(st)
	if err != nil {
		return err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(st.Endpoint, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Delegate "+st.Token)
	hc := *s.tx.agent.http
	// A redirect would carry the token away, and each attempt has its own end.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	hc.Timeout = 30 * time.Second
	retry := retryablehttp.Client{
		HTTPClient: &hc, RetryWaitMin: 250 * time.Millisecond, RetryWaitMax: 15 * time.Second, RetryMax: 1000,
		CheckRetry: retryablehttp.DefaultRetryPolicy, Backoff: jittered,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	resp, err := retry.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode > 299 {
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

// jittered is the exponential back-off, or what the manager asks for, and up to half
// as much again: many steps may end while a manager is away.
func jittered(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	d := retryablehttp.DefaultBackoff(shortest, longest, attempt, resp)
	return d + rand.N(d/2+1) //nolint:gosec // not a secret
}

// newReport is where the report goes and what it says.
func (s *step) newReport(st *stage.StepStatus) (path string, body []byte, err error) {
	if st.TaskID == "" {
		return "", nil, errors.New("step_status names no task")
	}
	answer := s.response()
	code := map[stage.Status]task.Code{stage.Success: task.OK, stage.Failure: task.Failed, stage.Timeout: task.Timeout}[answer.Status]
	id, delegate, account := url.PathEscape(st.TaskID), url.QueryEscape(st.DelegateID), url.QueryEscape(st.AccountID)
	if !st.RunnerResponse && !st.TaskStatusV2 {
		if answer.Status == stage.Timeout {
			answer.Status = stage.Failure // the old form has no time-out
		}
		// What became of the step is in the data: the answer itself is fine.
		body, err = json.Marshal(taskReport{Type: task.TypeDliteVMExecuteV2, Code: task.OK, Data: answer})
		return "/api/agent/v2/tasks/" + id + "/delegates/" + url.PathEscape(st.DelegateID) + "?accountId=" + account, body, err
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return "", nil, err
	}
	body, err = json.Marshal(taskReport{ID: st.TaskID, Type: task.TypeDliteVMExecuteV2, Code: code, Error: answer.ErrorMessage, Data: data})
	if st.RunnerResponse {
		return "/api/executions/" + id + "/response?accountId=" + account + "&delegateId=" + delegate, body, err
	}
	return "/api/executions/" + id + "/task-response?runnerId=" + delegate + "&accountId=" + account, body, err
}

// response is the step's end as an execute task's answer (PROTOCOL 3), masked like
// a delegate's own (SPEC S3).
func (s *step) response() *stage.ExecuteResponse {
	mask := s.tx.masks.Mask
	r := &stage.ExecuteResponse{Status: stage.Success, ErrorMessage: mask(s.answer.Error)}
	if f := s.answer.Failure; f != nil {
		r.Status, r.ErrorMessage = stage.Failure, mask(f.Error)
		if f.Timeout {
			r.Status = stage.Timeout
		}
		return r
	}
	res := s.answer.Result
	r.ExitCode, r.OOMKilled, r.Artifact, r.Tests = res.ExitCode, res.OOMKilled, res.Artifact, res.Tests
	switch {
	case res.OOMKilled:
		r.Status, r.ErrorMessage = stage.Failure, fmt.Sprintf("the step ran out of memory (exit code %d)", res.ExitCode)
	case res.ExitCode != 0:
		r.Status, r.ErrorMessage = stage.Failure, fmt.Sprintf("exit code %d", res.ExitCode)
	case res.Lost != "":
		r.Status = stage.Failure
		r.ErrorMessage = mask(res.Lost)
	}
	for _, o := range outputs(res) {
		if o.Type == stage.OutputString {
			o.Key, o.Value = mask(o.Key), mask(o.Value)
			if r.OutputVars == nil {
				r.OutputVars = map[string]string{}
			}
			r.OutputVars[o.Key] = o.Value
		}
		r.Outputs = append(r.Outputs, o)
	}
	return r
}
