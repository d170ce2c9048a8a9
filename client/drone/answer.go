package drone

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// Exit codes with a meaning (docs/protocol.md 6).
const (
	exitEarly    = 78  // the stage ends early, as a success
	exitKilled   = 137 // killed, or out of memory
	exitInternal = 255 // no exit code is known
)

// answerInit takes the result of the init.
func (r *run) answerInit(ctx context.Context, resp *task.Response) error {
	r.mu.Lock()
	answered := r.phase > phaseInit // see answerStep
	r.mu.Unlock()
	if answered {
		return nil
	}
	var out stage.InitResponse
	problem := failureOf(resp, &out)
	if problem == "" && out.Status != stage.Success {
		problem = cmp.Or(out.ErrorMessage, "the stage could not be prepared")
	}
	s := r.cloneStep()
	r.mu.Lock()
	killed := r.killed
	if problem != "" && !killed && (s == nil || out.FailureKind != "" || out.Status == "") {
		r.problem = problem
	}
	r.mu.Unlock()
	if s != nil {
		if err := r.endStep(ctx, s, cloneResult(problem, killed)); undelivered(ctx, err) {
			return err
		}
	}
	r.mu.Lock()
	r.initRuns = false
	r.phase = phaseSteps
	if problem != "" || r.killed {
		r.early = true // no step can run
	}
	skipped := r.advance()
	r.mu.Unlock()
	return r.advanced(ctx, skipped)
}

// cloneResult returns the result of the step that clones.
func cloneResult(problem string, killed bool) map[string]any {
	switch {
	case killed:
		return map[string]any{"status": statusKilled, "exit_code": exitKilled}
	case problem != "":
		return map[string]any{"status": statusFailure, "exit_code": 1, "error": shorten(problem)}
	}
	return map[string]any{"status": statusSuccess, "exit_code": 0}
}

// advanced reports the steps that advance has skipped, and tells the poller about new tasks.
func (r *run) advanced(ctx context.Context, skipped []*step) error {
	r.save()
	r.c.news()
	for _, s := range skipped {
		if err := r.reportStep(ctx, s, nil); undelivered(ctx, err) {
			return err
		}
	}
	return nil
}

// acquireStep reports that a step runs.
func (r *run) acquireStep(ctx context.Context, number int) (*task.Task, error) {
	if err := r.awaitLoaded(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	s := r.step(number)
	if r.phase != phaseSteps || r.killed || s == nil || s.status != stepReady && s.status != stepRunning {
		r.mu.Unlock()
		return nil, nil
	}
	s.status = stepRunning
	r.mu.Unlock()
	if err := r.reportRunning(ctx, s); undelivered(ctx, err) {
		r.mu.Lock()
		s.status = stepReady // the task is not handed out: nothing answers it
		r.advance()
		r.mu.Unlock()
		r.c.news()
		return nil, err
	}
	r.mu.Lock()
	if r.killed { // the task is not handed out: nothing answers it
		s.status = stepEnded
		s.record = s.record.with(map[string]any{"status": statusKilled, "stopped": unix(), "exit_code": exitKilled})
		r.releaseCleanup()
		r.mu.Unlock()
		r.c.news()
		return nil, nil
	}
	defer r.mu.Unlock()
	e := s.plan.Execute
	e.Environment = merge(e.Environment, r.progressVariables(s))
	e.LogKey = r.c.logKey(s.record)
	return r.task(strconv.Itoa(number), task.TypeLocalExecute, &e)
}

// progressVariables returns the variables that describe the stage at the start of a step. The
// caller holds mu.
func (r *run) progressVariables(s *step) map[string]string {
	status := statusSuccess
	if r.failed() {
		status = statusFailure
	}
	build := status
	if r.details != nil && len(failedStages(r.details.Build)) > 0 { // of an earlier stage
		build = statusFailure
	}
	started, now := strconv.FormatInt(r.progress.Started, 10), strconv.FormatInt(unix(), 10)
	return map[string]string{
		"DRONE_BUILD_STATUS": build, "CI_BUILD_STATUS": build,
		"DRONE_STAGE_STATUS": status, "CI_JOB_STATUS": status,
		"DRONE_STAGE_STARTED": started, "DRONE_STAGE_FINISHED": now, "DRONE_BUILD_FINISHED": now,
		"DRONE_STEP_NAME": s.plan.Name, "DRONE_STEP_NUMBER": strconv.Itoa(s.plan.Number),
		"DRONE_CARD_PATH": "/dev/stdout", "DRONE_FAILED_STEPS": strings.Join(r.failedSteps(), ","),
	}
}

// answerStep takes the result of a step.
func (r *run) answerStep(ctx context.Context, number int, resp *task.Response) error {
	r.mu.Lock()
	s := r.step(number)
	killed := r.killed || r.halted
	// A poller that was killed before it noted its answer answers again, with a failure.
	answered := s == nil || s.status >= stepStarted
	r.mu.Unlock()
	if answered {
		return nil
	}
	var out stage.ExecuteResponse
	problem := failureOf(resp, &out)
	if problem == "" && out.Status == stage.Success && s.plan.Detached && !killed {
		r.mu.Lock()
		s.status = stepStarted // it ends with the stage
		skipped := r.advance()
		r.mu.Unlock()
		return r.advanced(ctx, skipped)
	}
	result := stepResult(problem, &out, killed)
	if err := r.endStep(ctx, s, result); undelivered(ctx, err) {
		return err
	}
	r.mu.Lock()
	code := s.record.number("exit_code")
	status := s.record.text("status")
	switch {
	case code == exitEarly && status == statusSuccess:
		r.early = true
	case status != statusSuccess && !s.plan.IgnoreFailure && r.failCode == 0:
		r.failCode = code
	}
	if s.plan.FailFast && status != statusSuccess {
		r.early, r.halted = true, true
	}
	skipped := r.advance()
	r.mu.Unlock()
	return r.advanced(ctx, skipped)
}

// endStep reports the result of a step.
func (r *run) endStep(ctx context.Context, s *step, result map[string]any) error {
	result = maps.Clone(result)
	result["stopped"] = unix()
	err := r.reportStep(ctx, s, result)
	if undelivered(ctx, err) {
		return err
	}
	r.mu.Lock()
	s.status = stepEnded
	r.mu.Unlock()
	return nil
}

// failureOf decodes the payload of a response. It returns the reason if no handler has run the
// task.
func failureOf(resp *task.Response, out any) string {
	if resp.Code != task.OK {
		var text struct {
			Message string `json:"error_msg"`
		}
		_ = json.Unmarshal(resp.Data, &text)
		return cmp.Or(text.Message, resp.Error, string(resp.Code))
	}
	if err := json.Unmarshal(resp.Data, out); err != nil {
		return "the answer of the task cannot be decoded"
	}
	return ""
}

// stepResult returns the result of a step as the server stores it.
func stepResult(problem string, out *stage.ExecuteResponse, killed bool) map[string]any {
	switch {
	case killed:
		return map[string]any{"status": statusKilled, "exit_code": exitKilled}
	case problem != "":
		return map[string]any{"status": statusError, "exit_code": exitInternal, "error": shorten(problem)}
	case out.OOMKilled:
		return map[string]any{"status": statusFailure, "exit_code": exitKilled, "error": shorten(out.ErrorMessage)}
	case out.Status == stage.Success, out.ExitCode == exitEarly:
		return map[string]any{"status": statusSuccess, "exit_code": out.ExitCode}
	case out.ExitCode != 0:
		return map[string]any{"status": statusFailure, "exit_code": out.ExitCode}
	}
	return map[string]any{"status": statusError, "exit_code": exitInternal, "error": shorten(out.ErrorMessage)}
}

// acquireCleanup returns the cleanup.
func (r *run) acquireCleanup(ctx context.Context) (*task.Task, error) {
	if err := r.awaitLoaded(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase != phaseCleanup {
		return nil, nil
	}
	return r.task(partCleanup, task.TypeLocalCleanup, &stage.CleanupRequest{GroupID: r.key})
}

// answerCleanup ends the steps that the server believes to run, and then the stage.
func (r *run) answerCleanup(ctx context.Context, resp *task.Response) error {
	var out stage.CleanupResponse
	if problem := cmp.Or(failureOf(resp, &out), out.ErrorMessage); problem != "" {
		r.c.cfg.Log.Warn().Int64("stage", r.id).Str("reason", problem).Msg("the cleanup of a stage left something")
	}
	r.mu.Lock()
	all, killed := r.steps, r.killed
	r.mu.Unlock()
	for _, s := range all {
		r.mu.Lock()
		status := s.record.text("status")
		r.mu.Unlock()
		var result map[string]any
		switch {
		case status == statusRunning && killed:
			result = map[string]any{"status": statusKilled, "exit_code": exitKilled, "stopped": unix()}
		case status == statusRunning: // it was in the background
			result = map[string]any{"status": statusSuccess, "stopped": unix()}
		case status == statusPending:
			result = map[string]any{"status": statusSkipped, "started": unix(), "stopped": unix()}
		}
		if err := r.reportStep(ctx, s, result); undelivered(ctx, err) {
			return err
		}
	}
	return r.endStage(ctx)
}
