package manager

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
	"github.com/delegate-io/dlite/task/stage"
)

// The checks in this file refuse invalid values of callers. Each error names the member
// by its JSON path.

// firstError returns the first error that is not nil.
func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// check checks the values of a stage. It leaves out the members that have a default.
func checkStage(req *api.StageRequest) error {
	if err := firstError(
		checkID("id", req.ID),
		checkSize("name", len(req.Name), maxName),
		checkNames("selectors", req.Selectors),
		checkDuration("timeout_ms", req.TimeoutMS),
		checkDuration("queue_timeout_ms", req.QueueTimeoutMS),
		checkDuration("init_timeout_ms", req.InitTimeoutMS),
		checkID("pipeline", req.Pipeline),
		checkCount("labels", len(req.Labels), maxLabels),
		checkRetry(req.Retry),
		checkHold(req.Hold, req.Retry),
		checkCount("steps", len(req.Steps), maxSteps),
		checkSize("cleanup", len(req.Cleanup), maxCleanup),
	); err != nil {
		return err
	}
	for name, value := range req.Labels {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%w: labels: a label is named %q; it needs a name without =", ErrInvalid, cut(name, maxPathName))
		}
		if err := firstError(checkID("the name of "+joinPath("labels", name), name), checkID(joinPath("labels", name), value)); err != nil {
			return err
		}
	}
	for i := range req.Steps {
		if err := checkStep(fmt.Sprintf("steps[%d]", i), &req.Steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func checkStep(path string, s *api.StepRequest) error {
	return firstError(
		checkID(path+".id", s.ID),
		checkSize(path+".name", len(s.Name), maxName),
		checkDuration(path+".timeout_ms", s.TimeoutMS),
		checkOutputs(path+".data", s.Data),
		checkOneOf(path+".run_on", cmp.Or(s.RunOn, runOnSuccess), runOnSuccess, runOnFailure, runOnAlways),
	)
}

// check checks a policy. Nil is valid.
func checkRetry(r *api.Retry) error {
	if r == nil {
		return nil
	}
	on := []string{retryOnLost, retryOnTimeout, retryOnFailure}
	if err := firstError(
		checkNumber("retry.max_attempts", r.MaxAttempts, maxAttempts),
		checkCount("retry.on", len(r.On), len(on)),
		checkDuration("retry.backoff_ms", r.BackoffMS),
		checkDuration("retry.max_backoff_ms", r.MaxBackoffMS),
	); err != nil {
		return err
	}
	for i, why := range r.On {
		if err := checkOneOf(fmt.Sprintf("retry.on[%d]", i), why, on...); err != nil {
			return err
		}
	}
	return nil
}

// check checks the values of a single task. It leaves out the members that have a
// default.
func (req *TaskRequest) check() error {
	if err := firstError(
		checkID("id", req.Task.ID),
		checkSize("type", len(req.Task.Type), maxName),
		checkSize("driver", len(req.Task.Driver), maxName),
		checkNames("selectors", req.Selectors),
		checkDuration("timeout", req.Task.Timeout),
		checkDuration("queue_timeout_ms", req.QueueTimeout),
		checkCount("secrets", len(req.Task.Secrets), maxNames),
		checkRetry(req.Retry),
	); err != nil {
		return err
	}
	if req.Task.Type == "" {
		return fmt.Errorf("%w: type is missing: a task needs one", ErrInvalid)
	}
	return nil
}

// check checks the values of a schedule, without its stage or task.
func checkSchedule(s *api.Schedule) error {
	if s.ID == "" {
		return fmt.Errorf("%w: id is missing: a schedule needs one", ErrInvalid)
	}
	return firstError(
		checkID("id", s.ID),
		checkSize("name", len(s.Name), maxName),
		checkSize("cron", len(s.Cron), maxCron),
		checkInterval("cron", s.Cron),
		checkSize("time_zone", len(s.TimeZone), maxZone),
		checkOneOf("missed", s.Missed, missedOnce, missedSkip, missedAll),
		checkOneOf("overlap", s.Overlap, overlapAllow, overlapSkip),
	)
}

// checkInterval checks the interval of "@every". The cron package would round it up to a
// second, also if it is negative. Text that is not a duration passes, because the parser
// reports it.
func checkInterval(path, cron string) error {
	_, text, ok := strings.Cut(cron, "@every ")
	d, err := time.ParseDuration(text)
	if !ok || err != nil || d >= minInterval && d%minInterval == 0 && d <= maxDuration.Duration() {
		return nil
	}
	return fmt.Errorf("%w: %s is %q; the interval must be whole seconds, from %s to %s", ErrInvalid, path, cron, minInterval, maxDuration.Duration())
}

// check checks a limit.
func checkLimit(l *api.Limit) error {
	name, value, _ := strings.Cut(l.Group, ":")
	switch {
	case len(l.Group) > len("label:=")+2*maxID:
		return checkSize("group", len(l.Group), len("label:=")+2*maxID)
	case l.Group == wholeAccount, name == "pipeline" && value != "", name == "label" && strings.Contains(value, "="):
		return checkNumber("max", l.Max, maxRunning)
	default:
		return fmt.Errorf("%w: group is %q; it must be account, pipeline:NAME or label:NAME=VALUE", ErrInvalid, l.Group)
	}
}

// check checks the body of a registration or heartbeat.
func (r *registration) check() error {
	return firstError(
		checkID("delegateId", r.DelegateID),
		checkSize("delegateName", len(r.Name), maxName),
		checkSize("delegateType", len(r.DelegateType), maxName),
		checkSize("hostName", len(r.HostName), maxName),
		checkSize("version", len(r.Version), maxName),
		checkSize("group", len(r.Group), maxName),
		checkNames("tags", r.Tags),
		checkNames("supportedTaskTypes", r.TaskTypes),
		checkRefusal(r.Refused),
	)
}

// checkRefusal checks the refusal in a heartbeat.
func checkRefusal(r *queue.Refusal) error {
	if r == nil {
		return nil
	}
	const most = 1000 // percent
	return firstError(
		checkOneOf("refused.resource", r.Resource, "cpu", "memory"),
		checkNumber("refused.load", r.Load, most),
		checkNumber("refused.limit", r.Limit, most),
	)
}

// checkOutputs checks the outputs in the data of a step or of its answer.
func checkOutputs(path string, data json.RawMessage) error {
	var d struct {
		OutputVars json.RawMessage `json:"output_vars"`
		Outputs    json.RawMessage `json:"outputs"`
	}
	if json.Unmarshal(data, &d) != nil {
		return nil
	}
	if err := firstError(
		checkSize(path+".output_vars", len(d.OutputVars), maxOutputs),
		checkSize(path+".outputs", len(d.Outputs), maxOutputs),
	); err != nil {
		return err
	}
	var outputs []stage.Output
	if json.Unmarshal(d.Outputs, &outputs) != nil {
		return nil
	}
	outputs = slices.DeleteFunc(outputs, func(o stage.Output) bool { return o.Type != stage.OutputSecret })
	return checkCount(path+".outputs of the type SECRET", len(outputs), maxSecretOutputs)
}

// isPart reports whether tasks of a type are parts of stages.
func isPart(taskType string) bool {
	switch taskkind.Of(taskType) {
	case taskkind.Init, taskkind.Execute, taskkind.Cleanup:
		return true
	default:
		return false
	}
}

// checkPriority returns the priority with a name. An empty name becomes the
// default.
func checkPriority(name *string) (queue.Priority, error) {
	*name = cmp.Or(*name, "NORMAL")
	return priorities[*name], checkOneOf("priority", *name, "NORMAL", "HIGH")
}
