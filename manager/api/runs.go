package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// RunRequest starts a run of a pipeline.
type RunRequest struct {
	// ID is unique among the runs of the account: up to 64 letters, digits, _ and -. Empty means a random one. A second
	// request with the id returns the first run.
	ID string `json:"id,omitempty"`
	// YAML is the pipeline, and Name the name of its file, for messages.
	YAML string `json:"yaml"`
	Name string `json:"name,omitempty"`
	// Pipeline is the id of a stored pipeline, which replaces YAML and Name. InputSetNames are input sets that are stored
	// with it. They are merged before InputSets.
	Pipeline      string   `json:"pipeline,omitempty"`
	InputSetNames []string `json:"input_set_names,omitempty"`
	// InputSets are the YAML of input sets, merged in their order. Inputs are values by path, for example
	// pipeline.variables.tag, and have precedence.
	InputSets []string          `json:"input_sets,omitempty"`
	Inputs    map[string]string `json:"inputs,omitempty"`
	// Stages selects stages by identifier. Empty means all.
	Stages []string `json:"stages,omitempty"`
	// From selects a stage, those beside it in a parallel block, and all stages after it. It cannot be combined with
	// Stages, nor with dependsOn in the pipeline.
	From string `json:"from,omitempty"`
	// SkipOtherStages leaves out stages that are not CI stages. Otherwise they are errors.
	SkipOtherStages bool `json:"skip_other_stages,omitempty"`
	// HoldFailed is how long a step that failed without a matching failure strategy waits for a person, in the form of
	// time-outs such as 30m or 1d, at least 10s. Its stage stays open, and can be retried from a step. Empty does not wait.
	HoldFailed string `json:"hold_failed,omitempty"`
	// Cause is MANUAL (the default), WEBHOOK, WEBHOOK_CUSTOM, SCHEDULER_CRON or ARTIFACT. User and Email name the person behind it.
	Cause string `json:"cause,omitempty"`
	User  string `json:"user,omitempty"`
	Email string `json:"email,omitempty"`
	// Branch and Labels can be searched.
	Branch string            `json:"branch,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Trigger and Codebase are the values of trigger.* and codebase.*. They are never evaluated.
	Trigger  map[string]any `json:"trigger,omitempty"`
	Codebase map[string]any `json:"codebase,omitempty"`
	// Variables are the values of variable.*, with the members org and account.
	Variables map[string]any `json:"variables,omitempty"`
	// CommitStatus reports the state of the run to the Git provider of codebase.repoUrl, for codebase.commitSha. Nil reports
	// nothing.
	CommitStatus *CommitStatus `json:"commit_status,omitempty"`
}

// CommitStatus configures the report of a run's state to a Git provider. Connector is required.
type CommitStatus struct {
	// Connector is a connector of the manager, of the kind github, gitlab, bitbucket, gitea or azure-repos, for the server of
	// the repository.
	Connector string `json:"connector"`
	// Context names the status among those of a commit. Defaults to dlite/ and the identifier of the pipeline.
	Context string `json:"context,omitempty"`
}

// ReportedStatus is the status of a commit that a run reports. The states are pending, running, success, failure and
// aborted.
type ReportedStatus struct {
	Provider   string `json:"provider"`
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Context    string `json:"context"`
	// State is the present state, and Sent the last one that the provider has taken.
	State string `json:"state"`
	Sent  string `json:"sent,omitempty"`
	// Problem is why the present state was not taken. GivenUp means that it is not sent again.
	Problem string `json:"problem,omitempty"`
	GivenUp bool   `json:"given_up,omitempty"`
}

// Run is a run of a pipeline.
type Run struct {
	ID string `json:"id"`
	// Number counts the runs of the pipeline from 1.
	Number   int64  `json:"number"`
	Pipeline string `json:"pipeline"`
	// StoredPipeline and StoredVersion are the stored pipeline of the run, if it was started with one.
	StoredPipeline string `json:"stored_pipeline,omitempty"`
	StoredVersion  int64  `json:"stored_version,omitempty"`
	// Status is RUNNING, SUCCEEDED, FAILED, ABORTED or another word of docs/runs.md.
	Status string `json:"status"`
	// Cause is MANUAL, WEBHOOK (also for polled repositories), WEBHOOK_CUSTOM, SCHEDULER_CRON or ARTIFACT.
	Cause  string `json:"cause"`
	Branch string `json:"branch,omitempty"`
	// Name is the name of the pipeline, User the person behind the run.
	Name string `json:"name,omitempty"`
	User string `json:"user,omitempty"`
	// Reason explains the status.
	Reason    string            `json:"reason,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	// Version counts the changes of the run.
	Version int64 `json:"version"`
	// Statuses are the commit statuses that the run reports. Lists of runs have none.
	Statuses []ReportedStatus `json:"statuses,omitempty"`
	// Nodes are the pipeline, its stages, groups, steps and strategies as far as their turn has come, parents before
	// their children. Lists of runs have none.
	Nodes []Node `json:"nodes,omitempty"`
}

// Ended reports that the run has ended. A retry can begin it again.
func (r *Run) Ended() bool { return !r.EndedAt.IsZero() }

// Node is the state of a part of a pipeline.
type Node struct {
	// Path is the qualified name, for example pipeline.stages.build.spec.execution.steps.test.
	Path   string `json:"path"`
	Parent string `json:"parent,omitempty"`
	// Kind is pipeline, stage, group, step, or strategy for the parent of the nodes that a strategy makes.
	Kind       string `json:"kind"`
	Identifier string `json:"identifier"`
	Name       string `json:"name,omitempty"`
	Type       string `json:"type,omitempty"`
	Order      int    `json:"order"`
	Status     string `json:"status"`
	Attempt    int    `json:"attempt"`
	// Reason explains the status, and Values are the values that decided it.
	Reason      string            `json:"reason,omitempty"`
	Values      []NodeValue       `json:"values,omitempty"`
	FailureKind string            `json:"failure_kind,omitempty"`
	ExitCode    *int              `json:"exit_code,omitempty"`
	Outputs     map[string]string `json:"outputs,omitempty"`
	// Tests summarizes the test reports of a step, and Artifact is its artifact file, base64 in JSON. Both are shortened
	// to some kilobytes. The stage at the manager has all of them.
	Tests    *TestSummary `json:"tests,omitempty"`
	Artifact []byte       `json:"artifact,omitempty"`
	// ArtifactBytes is the size of an artifact file that is too large for the run, and then left out.
	ArtifactBytes int `json:"artifact_bytes,omitempty"`

	Retries   int       `json:"retries,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Due is the time at which a node that waits continues or ends.
	Due       time.Time       `json:"due,omitzero"`
	Past      []NodeAttempt   `json:"past,omitempty"`
	Evaluated []NodeEvaluated `json:"evaluated,omitempty"`
	Matrix    map[string]any  `json:"matrix,omitempty"`
	// Inputs are the fields that are asked for while the run is running, and their values.
	Inputs []NodeInput `json:"inputs,omitempty"`
	// StageID is the id of a stage at the manager, and StepID the id of a step there.
	StageID string `json:"stage_id,omitempty"`
	StepID  string `json:"step_id,omitempty"`
	// LogKey is the key of the log of a step, or of the init of a stage. It is empty if this attempt was not sent to the
	// manager.
	LogKey string `json:"log_key,omitempty"`
}

// NodeValue is a named value that decided something.
type NodeValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NodeInput is a field of a node that a person gives while the run is running.
type NodeInput struct {
	// Field is the field of the node, for example spec.command, and Text its definition.
	Field string `json:"field"`
	Text  string `json:"text"`
	// Value is the answer. Given reports that there is one.
	Value string `json:"value,omitempty"`
	Given bool   `json:"given,omitempty"`
}

// NodeAttempt is an earlier attempt of a node.
type NodeAttempt struct {
	Attempt   int       `json:"attempt"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	LogKey    string    `json:"log_key,omitempty"`
}

// NodeEvaluated is an expression with its value at a time. The value of a secret is its reference.
type NodeEvaluated struct {
	// Field is the field that holds the expression, for example spec.command.
	Field string `json:"field,omitempty"`
	// Text is the expression, Value its value as text and Source its origin.
	Text   string    `json:"text"`
	Value  string    `json:"value"`
	Source string    `json:"source,omitempty"`
	Error  string    `json:"error,omitempty"`
	Time   time.Time `json:"time"`
}

// Order is a request of a person to a run.
type Order struct {
	// Node is the path of the node. An abort without it is for the whole run, and a retry without it begins with the
	// first stage that did not succeed.
	Node string `json:"node,omitempty"`
	// By names the person, and Reason says why, for an abort.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Answer belongs to [Client.AnswerRun].
	Answer *Answer `json:"answer,omitempty"`
}

// Answer is the answer to a node that waits for a person. It also marks a running step as failed.
type Answer struct {
	// Action answers INTERVENTION_WAITING: Retry, Ignore, MarkAsSuccess, MarkAsFailure, Abort, StageRollback,
	// PipelineRollback or RetryStepGroup. MarkAsFailure also ends a step that is RUNNING: it fails with the error
	// UserMarkedFailure, and its failure strategies decide what follows.
	Action string `json:"action,omitempty"`
	// Approve answers APPROVAL_WAITING.
	Approve bool `json:"approve,omitempty"`
	// Inputs answers INPUT_WAITING: values by field. They are plain text and never evaluated.
	Inputs map[string]string `json:"inputs,omitempty"`
	// Comment is kept with the node.
	Comment string `json:"comment,omitempty"`
}

// RunChange is a change of a run: its new state without nodes, and the nodes that have changed.
type RunChange struct {
	Run   Run    `json:"run"`
	Nodes []Node `json:"nodes"`
}

// problemList is the answer of a check.
type problemList struct {
	Problems []Problem `json:"problems"`
}

// RunPage is a part of a list of runs, the newest first.
type RunPage struct {
	Runs []Run `json:"runs"`
	// Next continues the list, and is empty at its end. A page can be shorter than its limit, or empty, before the end.
	Next string `json:"next,omitempty"`
}

// StartRun starts a run. A pipeline with errors is an [Error] with Problems.
func (c *Client) StartRun(ctx context.Context, req RunRequest) (Run, error) {
	if req.ID == "" {
		req.ID = rand.Text() // so that the call can be repeated
	}
	return fetch[Run](ctx, c, post("api", "runs").with(req))
}

// Run returns a run with its nodes.
func (c *Client) Run(ctx context.Context, id string) (Run, error) {
	return fetch[Run](ctx, c, get("api", "runs", id))
}

// WaitRun waits until a run has ended, and returns it.
func (c *Client) WaitRun(ctx context.Context, id string) (Run, error) {
	return await(ctx, c, func(r Run) bool { return r.Ended() }, "api", "runs", id)
}

// RunFilter selects runs. The zero value selects all.
type RunFilter struct {
	Pipeline, Status, Branch string
	// Delegate is the name of a delegate that had a stage of the run, or its id if it has no name.
	Delegate string
	// Labels are names and values that the run must have.
	Labels map[string]string
	// Text is a number of words. Each must be a word, or the beginning of one, of the pipeline's identifier or name, the
	// branch or the user, without regard to case.
	Text string
	// After and Before bound the time of creation.
	After, Before time.Time
	// Limit is the size of a page, at most and by default 50. Page is the Next of a page, after which the list continues.
	Limit int
	Page  string
}

// Runs yields the runs of the account without their nodes, the newest first. It ends after an error.
func (c *Client) Runs(ctx context.Context, f RunFilter) iter.Seq2[Run, error] {
	return pages(ctx, c, "page", f.query(), func(p RunPage) ([]Run, string) { return p.Runs, p.Next }, "api", "runs")
}

func (f *RunFilter) query() url.Values {
	q := url.Values{}
	set(q, "pipeline", f.Pipeline)
	set(q, "status", f.Status)
	set(q, "branch", f.Branch)
	set(q, "delegate", f.Delegate)
	set(q, "text", f.Text)
	set(q, "page", f.Page)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	for name, value := range f.Labels {
		q.Add("label", name+"="+value)
	}
	for name, t := range map[string]time.Time{"after": f.After, "before": f.Before} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339))
		}
	}
	return q
}

// RunChanges yields the changes of a run after a version, until it has ended; 0 begins with everything. When the
// connection is lost, it yields an error, and connects again if the loop continues. Each change comes once. The iterator
// ends with an error if the manager refuses the call, and with the error of ctx.
func (c *Client) RunChanges(ctx context.Context, id string, since int64) iter.Seq2[RunChange, error] {
	return func(yield func(RunChange, error) bool) {
		messages := c.follow(ctx, strconv.FormatInt(since, 10), func(last string) *call {
			return get("api", "runs", id, "events").asking(url.Values{"since": {last}})
		})
		for m, err := range messages {
			var change RunChange
			if err == nil {
				if err = json.Unmarshal([]byte(m.data), &change); err != nil {
					err = fmt.Errorf("the manager sent a change of run %s that cannot be read: %w", id, err)
				}
			}
			if !yield(change, err) || change.Run.Ended() {
				return
			}
		}
	}
}

// RunEvents yields the runs of the account that change, without their nodes, each at most once a second, until ctx ends. A run
// without an ID means that changes may be missing: read the runs again. It is also the first one. When the connection is
// lost, it yields an error, and connects again if the loop continues. A change by another manager is noticed within some
// seconds, and only of the 50 newest runs. The iterator ends with an error if the manager refuses the call, and with the
// error of ctx.
func (c *Client) RunEvents(ctx context.Context) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		for m, err := range c.follow(ctx, "", func(string) *call { return get("api", "run-events") }) {
			var run Run
			if err == nil && m.event != "missed" {
				if err = json.Unmarshal([]byte(m.data), &run); err != nil {
					err = fmt.Errorf("the manager sent a run that cannot be read: %w", err)
				}
			}
			if !yield(run, err) {
				return
			}
		}
	}
}

// RunLog is a part of the logs of a run: lines of one log, or the end.
type RunLog struct {
	// ID is the place after the part, at which [Client.RunLogs] continues.
	ID string `json:"-"`
	// Node is the path of a step, or of a stage for the log of its init. Kind is step or stage.
	Node    string    `json:"node,omitempty"`
	Kind    string    `json:"kind,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	LogKey  string    `json:"log_key,omitempty"`
	Lines   []LogLine `json:"lines,omitempty"`
	// Status is the status of the run. Only the last part has it, and no lines. Unfinished are the keys of logs that had
	// no end when their step had ended, with the reasons.
	Status     string            `json:"status,omitempty"`
	Unfinished map[string]string `json:"unfinished,omitempty"`
}

// RunLogs yields the logs of all steps of a run and of the inits of its stages, of all attempts, until the run has
// ended. Since is the ID of a part; empty begins with everything. When the connection is lost, it yields an error, and
// connects again if the loop continues. No line is lost or comes twice. The iterator ends with an error if the manager
// refuses the call, and with the error of ctx.
func (c *Client) RunLogs(ctx context.Context, id, since string) iter.Seq2[RunLog, error] {
	return func(yield func(RunLog, error) bool) {
		messages := c.follow(ctx, since, func(last string) *call {
			return get("api", "runs", id, "logs").asking(url.Values{"since": {last}})
		})
		for m, err := range messages {
			part := RunLog{ID: m.id}
			if err == nil {
				if err = json.Unmarshal([]byte(m.data), &part); err != nil {
					err = fmt.Errorf("the manager sent lines of run %s that cannot be read: %w", id, err)
				}
			}
			if !yield(part, err) || part.Status != "" {
				return
			}
		}
	}
}

// RunDefinition returns the YAML of a run.
func (c *Client) RunDefinition(ctx context.Context, id string) ([]byte, error) {
	return c.runText(ctx, id, "definition")
}

// ResolvedRun returns the YAML of a run with its templates, its inputs, the values of its expressions and the children of
// its strategies in place, for people.
func (c *Client) ResolvedRun(ctx context.Context, id string) ([]byte, error) {
	return c.runText(ctx, id, "resolved")
}

// RunInputs returns the inputs of a run in the order of their names: the runtime inputs with those that have a default, the
// values of codebase, trigger and variable, and the selected stages.
func (c *Client) RunInputs(ctx context.Context, id string) ([]NodeValue, error) {
	list, err := fetch[inputList](ctx, c, get("api", "runs", id, "inputs"))
	return list.Inputs, err
}

// inputList is the answer of the inputs of a run.
type inputList struct {
	Inputs []NodeValue `json:"inputs"`
}

func (c *Client) runText(ctx context.Context, id, what string) (text []byte, err error) {
	err = c.do(ctx, get("api", "runs", id, what), func(body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	})
	return text, err
}

// RunDiff is what differs between two runs.
type RunDiff struct {
	// Run and Other are without nodes.
	Run   Run `json:"run"`
	Other Run `json:"other"`
	// Definition is a unified diff of the pipelines with their templates and inputs in place. Empty means that they are
	// the same.
	Definition string `json:"definition,omitempty"`
	// Inputs are the runtime inputs, and the values of codebase, trigger and variable, that differ.
	Inputs []ValueDiff `json:"inputs"`
	// Nodes are the nodes of both runs.
	Nodes []NodeDiff `json:"nodes"`
}

// ValueDiff is a value of two runs. Nil means that the run has none.
type ValueDiff struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
	Other *string `json:"other,omitempty"`
}

// NodeDiff is a node of two runs. A run that has no such node has no status and no duration.
type NodeDiff struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"`
	Identifier string `json:"identifier"`
	// Changed reports that the status or an output differs.
	Changed     bool   `json:"changed"`
	Status      string `json:"status,omitempty"`
	OtherStatus string `json:"other_status,omitempty"`
	// Duration and OtherDuration are in milliseconds, from the start to the end of the last attempt. Nil means that it
	// did not run or has not ended.
	Duration      *int64 `json:"duration_ms,omitempty"`
	OtherDuration *int64 `json:"other_duration_ms,omitempty"`
	// Outputs are the outputs that differ.
	Outputs []ValueDiff `json:"outputs,omitempty"`
}

// DiffRuns compares a run with another one of the account.
func (c *Client) DiffRuns(ctx context.Context, id, other string) (RunDiff, error) {
	return fetch[RunDiff](ctx, c, get("api", "runs", id, "diff").asking(url.Values{"with": {other}}))
}

// AbortRun aborts a run, a stage, a group or a step. Its status is CANCELLING until the delegates confirm. Nothing changes
// if it has ended.
func (c *Client) AbortRun(ctx context.Context, id string, o Order) (Run, error) {
	return fetch[Run](ctx, c, post("api", "runs", id, "abort").with(o))
}

// RetryRun runs an ended run again from a stage. Earlier stages keep their results and outputs. While a failed step waits
// for an intervention, RetryRun runs its stage again from a step or group of it. The client does not
// repeat the call.
func (c *Client) RetryRun(ctx context.Context, id string, o Order) (Run, error) {
	return fetch[Run](ctx, c, post("api", "runs", id, "retry").with(o).onlyOnce())
}

// AnswerRun answers a node that waits for a person, or marks a running step as failed. The client does not repeat the call.
func (c *Client) AnswerRun(ctx context.Context, id string, o Order) (Run, error) {
	return fetch[Run](ctx, c, post("api", "runs", id, "answer").with(o).onlyOnce())
}

// RunAgain starts a new run with the definition and the inputs of another one. The client does not repeat the call.
func (c *Client) RunAgain(ctx context.Context, id string, o Order) (Run, error) {
	return fetch[Run](ctx, c, post("api", "runs", id, "again").with(o).onlyOnce())
}

// Lint returns the errors of a pipeline, and the places that probably do not do what their author wants. The manager
// knows the step types and templates.
func (c *Client) Lint(ctx context.Context, req RunRequest) ([]Problem, error) {
	out, err := fetch[problemList](ctx, c, post("api", "lint").with(req))
	return out.Problems, err
}
