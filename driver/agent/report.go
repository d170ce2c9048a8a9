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

// taskReport is a TaskResponse or a RunnerTaskResponse. They differ in the JSON form of Data. The
// manager reads the id from the path.
type taskReport struct {
	ID    string    `json:"id"`
	Type  string    `json:"type"`
	Code  task.Code `json:"code"`
	Error string    `json:"error,omitempty"`
	Data  any       `json:"data"`
}

// report reports the end of the step to the manager, if the manager asked the agent for it. The
// delegate answered the task earlier (distributed execute). It retries until the manager accepts
// the report or ReportTimeout passes.
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
			Msg("could not report the end of a step to the manager")
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
	// A redirect would forward the token.
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

// jittered returns the exponential back-off, or the time that the manager asks for, plus up to 50
// percent. Many steps may end while a manager is away.
func jittered(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	d := retryablehttp.DefaultBackoff(shortest, longest, attempt, resp)
	return d + rand.N(d/2+1) //nolint:gosec // not a secret
}

// newReport returns the path and the body of the report.
func (s *step) newReport(st *stage.StepStatus) (path string, body []byte, err error) {
	if st.TaskID == "" {
		return "", nil, errors.New("step_status names no task")
	}
	answer := s.response()
	code := map[stage.Status]task.Code{stage.Success: task.OK, stage.Failure: task.Failed, stage.Timeout: task.Timeout}[answer.Status]
	id, delegate, account := url.PathEscape(st.TaskID), url.QueryEscape(st.DelegateID), url.QueryEscape(st.AccountID)
	if !st.RunnerResponse && !st.TaskStatusV2 {
		if answer.Status == stage.Timeout {
			answer.Status = stage.Failure // the old format has no time-out
		}
		// Data contains the result of the step; the code covers the call only.
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

// response returns the result of the step as the answer of an execute task. It is masked like a
// delegate's own answer (rule S3).
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
