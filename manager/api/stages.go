package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"maps"
	"net/url"
	"strconv"
	"time"
)

// StageRequest describes a stage: an init, steps that run one after the other, and a cleanup, all on one delegate.
type StageRequest struct {
	// ID is unique among the account's stages and tasks. Empty means a random one. A second submission of the same stage
	// under the same id returns the first one.
	ID string `json:"id,omitempty"`
	// Name is a description for people.
	Name string `json:"name,omitempty"`
	// Selectors must all be tags of the delegate. Its name counts as a tag. Case does not matter.
	Selectors []string `json:"selectors,omitempty"`
	// Priority is "NORMAL" or "HIGH". Empty means NORMAL.
	Priority string `json:"priority,omitempty"`
	// Infra is the infrastructure that the stage runs on: local, vm or kubernetes. Empty means local. It determines the
	// types of the tasks.
	Infra string `json:"infra,omitempty"`
	// TimeoutMS bounds the stage from its start, without its cleanup, in milliseconds. 0 means no bound.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// QueueTimeoutMS bounds the wait for a delegate, in milliseconds. 0 means the setting of the manager, 8 hours.
	QueueTimeoutMS int64 `json:"queue_timeout_ms,omitempty"`
	// InitTimeoutMS bounds the init, in milliseconds. 0 means the setting of the manager, 1 hour.
	InitTimeoutMS int64 `json:"init_timeout_ms,omitempty"`
	// Pipeline and Labels describe the stage for people and for limits. A stage may have 20 labels.
	Pipeline string            `json:"pipeline,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Retry is the policy for running the stage again. Nil means never.
	Retry *Retry `json:"retry,omitempty"`
	// Hold keeps the stage open for further steps. Nil means that the stage has no other steps than Steps. A stage with a
	// hold cannot have a Retry.
	Hold *Hold `json:"hold,omitempty"`
	// Init is the payload of the init, see docs/stages.md. It may be empty.
	Init json.RawMessage `json:"init,omitempty"`
	// Steps run in their order. A stage may have 10,000.
	Steps []StepRequest `json:"steps,omitempty"`
	// Cleanup is the payload of the cleanup. It may be empty.
	Cleanup json.RawMessage `json:"cleanup,omitempty"`
}

// StepRequest describes a step.
type StepRequest struct {
	// ID is unique in the stage. Empty means "step" and the step's number, from 1. An appended step needs an id.
	ID string `json:"id,omitempty"`
	// Name is a description for people. Empty means the id.
	Name string `json:"name,omitempty"`
	// TimeoutMS bounds the step, in milliseconds. 0 means the timeout in Data, which is in seconds, or else the setting of
	// the manager, 1 hour.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// RunOn decides whether the step runs: "success" if no step has failed, "failure" if one has, "always" in both cases.
	// Empty means success. After a failed init, an abort or the stage's time-out no step runs.
	RunOn string `json:"run_on,omitempty"`
	// Data is the payload of the step, see docs/stages.md.
	Data json.RawMessage `json:"data"`
}

// Retry is a policy for running a failed stage again, or for submitting a failed task again. A new attempt runs the whole
// stage, from its old place in the queue, and on another delegate if possible.
type Retry struct {
	// MaxAttempts is the largest number of attempts, including the first, up to 100. 0 and 1 mean no retry.
	MaxAttempts int `json:"max_attempts"`
	// On lists the ends that cause a retry. "lost" is the loss of the delegate, and every failure whose kind is
	// [FailureDelegateLost], such as a machine that its cloud takes away. "timeout" is a time-out, "failure" is any other
	// end except success and abort. Defaults to lost alone.
	On []string `json:"on,omitempty"`
	// BackoffMS is the time before the second attempt. It doubles for each further attempt, up to MaxBackoffMS. They
	// default to 1 second and 5 minutes.
	BackoffMS    int64 `json:"backoff_ms,omitempty"`
	MaxBackoffMS int64 `json:"max_backoff_ms,omitempty"`
}

// Hold keeps a stage open: after its steps it waits for further steps, until [Client.FinishStage]. When the lease ends,
// the manager aborts the running steps, runs the cleanup, and ends the stage as FAILURE. The submission, an append and
// [Client.RenewStage] begin the lease anew.
type Hold struct {
	// LeaseMS is the length of the lease, from a second to a day. It also counts while the stage waits for a delegate. After
	// an outage of the manager it begins anew.
	LeaseMS int64 `json:"lease_ms"`
	// Announced are steps that will probably be appended, so that a driver can prepare their images or containers. An
	// announced step need not come, and a step need not be announced. The init has room for 100 steps with an image.
	Announced []StepRequest `json:"announced,omitempty"`
}

// Stage is the state of a stage.
type Stage struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Status is QUEUED, RUNNING, SUCCESS, FAILURE, TIMEOUT or ABORTED.
	Status    Status            `json:"status"`
	Selectors []string          `json:"selectors"`
	Priority  string            `json:"priority"`
	Infra     string            `json:"infra"`
	Pipeline  string            `json:"pipeline,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Attempts are the earlier attempts.
	Attempts []Attempt `json:"attempts,omitempty"`
	// Place is the stage's place in the queue, from 1. It is 0 if the stage is not queued.
	Place int `json:"place,omitempty"`
	// Reason explains why the stage is queued.
	Reason string `json:"reason,omitempty"`
	// Error explains why the stage did not succeed, and FailureKind classifies it: exit_code, timeout, image,
	// connectivity, out_of_memory, delegate_lost, aborted, refused, infrastructure, lease_ended or unknown.
	Error       string      `json:"error_msg,omitempty"`
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	// Open reports that the stage takes further steps, see [Hold].
	Open bool `json:"open,omitempty"`
	// DelegateID is the delegate that runs the stage or ran it.
	DelegateID string      `json:"delegate_id,omitempty"`
	Init       StepState   `json:"init"`
	Steps      []StepState `json:"steps"`
	Cleanup    StepState   `json:"cleanup"`
	// SubmittedAt, StartedAt and EndedAt are zero until they happen. A stage starts when a delegate acquires its init.
	SubmittedAt time.Time `json:"submitted_at"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
}

// Ended reports that the status of the stage is final.
func (s *Stage) Ended() bool { return s.Status.Ended() }

// Attempt describes an earlier run of a stage.
type Attempt struct {
	Status     Status    `json:"status"`
	Error      string    `json:"error_msg,omitempty"`
	DelegateID string    `json:"delegate_id,omitempty"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	EndedAt    time.Time `json:"ended_at,omitzero"`
}

// StepState is the state of an init, a step or a cleanup.
type StepState struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Status is QUEUED until a delegate has acquired the task. A step may also be SKIPPED.
	Status Status `json:"status"`
	TaskID string `json:"task_id,omitempty"`
	// LogKey is the key of the log in its log service. An init has a log too, for clone output and for the reason of a
	// failure.
	LogKey string `json:"log_key,omitempty"`
	// Error explains why the part did not succeed, and FailureKind classifies it.
	Error       string      `json:"error_msg,omitempty"`
	FailureKind FailureKind `json:"failure_kind,omitempty"`
	// ExitCode is the exit code of the step's command, if the delegate reports one.
	ExitCode int `json:"exit_code"`
	// OutputVars are the values of the step's output variables. Secret values are hidden.
	OutputVars map[string]string `json:"output_vars,omitempty"`
	// Outputs are the declared outputs. Secret values are hidden.
	Outputs []Output `json:"outputs,omitempty"`
	// Artifact is the content of the step's artifact file, base64 in JSON.
	Artifact []byte `json:"artifact,omitempty"`
	// Tests summarizes the step's test reports.
	Tests *TestSummary `json:"tests,omitempty"`
	// Clone is the time of the clone in an init that had one. It comes from the delegate's clock.
	Clone     *CloneTime `json:"clone,omitempty"`
	StartedAt time.Time  `json:"started_at,omitzero"`
	EndedAt   time.Time  `json:"ended_at,omitzero"`
}

// Ended reports that the status of the part is final.
func (s *StepState) Ended() bool { return s.Status.Ended() }

// CloneTime is the part of an init that checked out the repository: it began After milliseconds after the init, and took
// Took milliseconds.
type CloneTime struct {
	After int64 `json:"after_ms"`
	Took  int64 `json:"took_ms"`
}

// Output is a declared output of a step.
type Output struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Type is STRING or SECRET. Empty means STRING.
	Type string `json:"type,omitempty"`
}

// TestSummary summarizes test reports.
type TestSummary struct {
	Total   int `json:"total"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errors  int `json:"errors"`
	Skipped int `json:"skipped"`
	// DurationMS is the run time of the tests, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// Failures are the first tests that failed or had an error.
	Failures []TestFailure `json:"failures,omitempty"`
	// Problems names the reports that could not be read, with the reason.
	Problems []string `json:"problems,omitempty"`
}

// TestFailure is a test that failed or had an error.
type TestFailure struct {
	Suite   string `json:"suite,omitempty"`
	Class   string `json:"class,omitempty"`
	Name    string `json:"name"`
	Message string `json:"message,omitempty"`
}

// SubmitStage queues a stage. If the account already has the same stage under the id, it returns that one. Another stage
// or task under the id is an [Error] with status 409.
func (c *Client) SubmitStage(ctx context.Context, req StageRequest) (Stage, error) {
	if req.ID == "" {
		req.ID = rand.Text() // so that the call can be repeated
	}
	return fetch[Stage](ctx, c, post("api", "stages").with(req))
}

// Stage returns a stage.
func (c *Client) Stage(ctx context.Context, id string) (Stage, error) {
	return fetch[Stage](ctx, c, get("api", "stages", id))
}

// WaitStage waits until a stage has ended, and returns it.
func (c *Client) WaitStage(ctx context.Context, id string) (Stage, error) {
	return await(ctx, c, func(s Stage) bool { return s.Ended() }, "api", "stages", id)
}

// StageFilter selects stages. The zero value selects all.
type StageFilter struct {
	// Status is QUEUED, RUNNING, SUCCESS, FAILURE, TIMEOUT or ABORTED.
	Status Status
	// Pipeline is the name of a pipeline.
	Pipeline string
	// Labels must all match.
	Labels map[string]string
}

// stagePage is a part of a list of stages, the oldest first. Next continues after it.
type stagePage struct {
	Stages []Stage `json:"stages"`
	Next   string  `json:"next,omitempty"`
}

// Stages yields the stages of the account, the oldest first. It ends after an error.
func (c *Client) Stages(ctx context.Context, f StageFilter) iter.Seq2[Stage, error] {
	q := url.Values{"limit": {strconv.Itoa(100)}}
	set(q, "status", string(f.Status))
	set(q, "pipeline", f.Pipeline)
	for name, value := range f.Labels {
		q.Add("label", name+"="+value)
	}
	return pages(ctx, c, "after", q, func(p stagePage) ([]Stage, string) { return p.Stages, p.Next }, "api", "stages")
}

// AbortStage aborts a stage. It fails if the stage is unknown, and changes nothing if it has ended.
func (c *Client) AbortStage(ctx context.Context, id string) (Stage, error) {
	return fetch[Stage](ctx, c, post("api", "stages", id, "abort"))
}

// StepsRequest appends steps.
type StepsRequest struct {
	// Steps start when the init has succeeded, or at once after that, all at the same time.
	Steps []StepRequest `json:"steps"`
}

// AppendSteps adds steps to a held stage, each with an id. They start as soon as the init has succeeded, all at the same
// time. Steps that the stage has already are left out. The call begins the lease anew. It fails with status 409 if the
// stage has another step under one of the ids, or takes no more steps.
func (c *Client) AppendSteps(ctx context.Context, stage string, steps ...StepRequest) (Stage, error) {
	return fetch[Stage](ctx, c, post("api", "stages", stage, "steps").with(StepsRequest{steps}))
}

// Step returns the state of a step.
func (c *Client) Step(ctx context.Context, stage, step string) (StepState, error) {
	return fetch[StepState](ctx, c, get("api", "stages", stage, "steps", step))
}

// AbortStep aborts one step of a stage. A step that waits never starts.
func (c *Client) AbortStep(ctx context.Context, stage, step string) (Stage, error) {
	return fetch[Stage](ctx, c, post("api", "stages", stage, "steps", step, "abort"))
}

// RenewStage begins the lease of a held stage anew.
func (c *Client) RenewStage(ctx context.Context, id string) (Stage, error) {
	return fetch[Stage](ctx, c, post("api", "stages", id, "renew"))
}

// FinishStage ends a held stage: no more steps will come. The cleanup runs when all steps have ended.
func (c *Client) FinishStage(ctx context.Context, id string) (Stage, error) {
	return fetch[Stage](ctx, c, post("api", "stages", id, "finish"))
}

// set sets a member of a query that is not empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// pages yields the elements of a list, page by page. Token is the parameter that continues after a page.
func pages[P, T any](
	ctx context.Context, c *Client, token string, q url.Values, split func(P) ([]T, string), path ...string,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(q) // a second loop begins with the first page
		var none T
		for {
			page, err := fetch[P](ctx, c, get(path...).asking(q))
			if err != nil {
				yield(none, err)
				return
			}
			all, next := split(page)
			for _, v := range all {
				if !yield(v, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.Set(token, next)
		}
	}
}
