package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/engine"
	"github.com/delegate-io/dlite/manager/pipeline/internal/steps"
)

// Explanation is the run of a pipeline in which every stage opens and every step succeeds.
type Explanation struct {
	// Run has the nodes as such a run would leave them: skipped nodes with the values that
	// decided it, and the expressions with their values.
	Run api.Run `json:"run"`
	// Plans are the requests to the manager and the author's conditions, by the path of the node.
	Plans map[string]Plan `json:"plans"`
	// Assumed are outputs that were not given. Each has a placeholder as its value.
	Assumed []string `json:"assumed,omitempty"`
	// Missing are the connectors that the settings do not have, with their kinds. Without them the
	// run would fail.
	Missing map[string]string `json:"missing,omitempty"`
}

// Plan is how a node would run.
type Plan struct {
	// When is the status of the condition, and Condition its text.
	When      string `json:"when,omitempty"`
	Condition string `json:"condition,omitempty"`
	// Failure lists the failure strategies of the node, for example "Timeout: Retry".
	Failure []string `json:"failure,omitempty"`
	// Timeout is the time-out of a step or a stage. 0 means none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Stage opens the stage, and Step is the step as the manager gets it.
	Stage *api.StageRequest `json:"stage,omitempty"`
	Step  *api.StepRequest  `json:"step,omitempty"`
}

// Explain returns the run that a request would start if everything succeeded. It assumes the
// connectors that the settings do not have, and names them. It uses the rules of
// real runs, and neither a manager nor a database. Outputs are the outputs of steps, for
// example build.VERSION for the output VERSION of the step build. The name of the step may be
// preceded by as much of its path as is needed. Templates may be nil. Explain fails with
// [ErrInvalid], and with [Problems] if the pipeline has errors.
func Explain(ctx context.Context, req api.RunRequest, outputs map[string]string, settings Settings, templates func(ref, version string) (Source, bool)) (Explanation, error) {
	table, err := steps.New(settings)
	if err != nil {
		return Explanation{}, fmt.Errorf("the settings of pipelines: %w", err)
	}
	missing := map[string]string{}
	table = table.Assuming(missing)
	s := &Service{cfg: Config{Settings: settings, Templates: templates}, table: table}
	live, err := s.prepare(ctx, "explain", &request{RunRequest: req})
	if err != nil {
		return Explanation{}, err
	}
	live.run.Number, live.doc.Run.Number = 1, 1
	x := &explainer{
		live: live, table: table, outputs: outputs, used: map[string]bool{}, assumed: map[string]bool{},
		targets: map[string]steps.Target{}, plans: plansOf(live.pipeline),
	}
	if err := x.run(ctx); err != nil {
		return Explanation{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		if !x.used[name] {
			return Explanation{}, fmt.Errorf("%w: output %s: no step of that name runs: give STEP.OUTPUT, or more of the path of the step", ErrInvalid, name)
		}
	}
	if err := live.summarise(); err != nil {
		return Explanation{}, err
	}
	e := Explanation{Run: detail(&live.liveRun), Plans: map[string]Plan{}, Assumed: slices.Sorted(maps.Keys(x.assumed)), Missing: missing}
	for _, n := range live.state.Nodes {
		if plan, ok := x.plans[n.Source]; ok {
			if sent := x.sent[n.Path]; sent != nil {
				plan.Stage, plan.Step, plan.Timeout = sent.Stage, sent.Step, sent.Timeout
			}
			e.Plans[n.Path] = plan
		}
	}
	return e, nil
}

// explainer answers the commands of a run as a manager does whose steps all succeed.
type explainer struct {
	live    *preparedRun
	table   *steps.Table
	outputs map[string]string
	used    map[string]bool // outputs that a step has
	assumed map[string]bool
	targets map[string]steps.Target // by the path of the stage
	plans   map[string]Plan         // by the path in the definition
	sent    map[string]*Plan        // by the path of the node
	queue   []engine.Event
	timers  []engine.Command
}

// mostEvents bounds the events of an explanation. A pipeline that repeats a failure for ever, which
// needs a person in a real run, must not keep it.
const mostEvents = 200_000

func (x *explainer) run(ctx context.Context) error {
	state, commands, err := x.live.machine.Start(x.live.doc.Run)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	x.live.state, x.sent = state, map[string]*Plan{}
	now := x.live.doc.Run.StartedAt
	x.answer(commands)
	for range mostEvents {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(x.queue) == 0 && !x.fireRetry(&now) {
			return nil
		}
		e := x.queue[0]
		x.queue = x.queue[1:]
		e.Time = now
		_, commands, err := x.live.machine.Apply(state, e)
		if err != nil {
			return fmt.Errorf("applying the event %s of %s: %w", e.Kind, e.Node, err)
		}
		x.answer(commands)
	}
	return errors.New("the run does not end")
}

// fireRetry fires the next timer of a retry. Other timers wait for things that do not happen here.
func (x *explainer) fireRetry(now *time.Time) bool {
	next := -1
	for i, c := range x.timers {
		if c.Timer == engine.RetryTimer && (next < 0 || c.Due.Before(x.timers[next].Due)) {
			next = i
		}
	}
	if next < 0 {
		return false
	}
	c := x.timers[next]
	x.timers = slices.Delete(x.timers, next, next+1)
	if c.Due.After(*now) {
		*now = c.Due
	}
	x.queue = append(x.queue, engine.Event{Kind: engine.TimerFired, Node: c.Node, Attempt: c.Attempt, Timer: c.Timer})
	return true
}

func (x *explainer) answer(commands []engine.Command) {
	for i := range commands {
		c := &commands[i]
		switch c.Kind {
		case engine.SetTimer:
			x.timers = append(x.timers, *c)
		case engine.OpenStage:
			x.queue = append(x.queue, x.open(c))
		case engine.AppendSteps:
			for _, step := range c.Steps {
				x.queue = append(x.queue, x.step(c.Node, step))
			}
		case engine.FinishStage, engine.AbortStage:
			x.queue = append(x.queue, engine.Event{Kind: engine.StageEnded, Node: c.Node, Attempt: c.Attempt, Result: &engine.Result{}})
		case engine.AbortStep:
			x.queue = append(x.queue, engine.Event{
				Kind: engine.StepEnded, Node: c.Node, Attempt: c.Attempt, Result: &engine.Result{Failure: engine.FailureAborted, Message: c.Reason},
			})
		}
	}
}

func (x *explainer) open(c *engine.Command) engine.Event {
	run := x.live.doc.Run
	request, target, err := x.table.Stage(steps.Info{Stage: stageID(run.ID, c.Node, c.Attempt), Codebase: run.Codebase}, c.Open)
	if err != nil {
		return engine.Event{
			Kind: engine.StageEnded, Node: c.Node, Attempt: c.Attempt, Result: &engine.Result{Failure: engine.FailureConfiguration, Message: err.Error()},
		}
	}
	x.targets[c.Node] = target
	x.sent[c.Node] = &Plan{Stage: &request, Timeout: c.Open.Timeout}
	return engine.Event{Kind: engine.StageOpened, Node: c.Node, Attempt: c.Attempt}
}

func (x *explainer) step(stage string, step engine.Step) engine.Event {
	request, err := x.table.Step(x.targets[stage], step)
	if err != nil {
		return failedStep(step, engine.FailureConfiguration, err)
	}
	timeout := step.Timeout
	if timeout == 0 {
		timeout = steps.DefaultTimeout
	}
	x.sent[step.Node] = &Plan{Step: &request, Timeout: timeout}
	code := 0
	return engine.Event{
		Kind: engine.StepEnded, Node: step.Node, Attempt: max(step.Attempt, 1), Result: &engine.Result{ExitCode: &code, Outputs: x.outputsOf(step)},
	}
}

// outputsOf returns the outputs of a step: those that were given, and placeholders for the
// others that the pipeline declares.
func (x *explainer) outputsOf(step engine.Step) map[string]string {
	outputs := map[string]string{}
	declared, _ := step.Spec["outputVariables"].([]any)
	for _, d := range declared {
		if variable, ok := d.(map[string]any); ok {
			if name, ok := variable["name"].(string); ok && variable["type"] != "Secret" {
				outputs[name] = ""
			}
		}
	}
	assumed := maps.Clone(outputs)
	for _, given := range slices.SortedFunc(maps.Keys(x.outputs), longer) {
		path, name := outputName(given)
		if source := x.live.state.Nodes[step.Node].Source; endsWithPath(step.Node, path) || endsWithPath(source, path) {
			outputs[name] = x.outputs[given]
			x.used[given] = true
			delete(assumed, name)
		}
	}
	for name := range assumed {
		outputs[name] = "(output " + name + " of " + step.Identifier + ")"
		x.assumed[step.Identifier+"."+name] = true
	}
	return outputs
}

// longer sorts names by their length, so that a whole path wins over a part of it.
func longer(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// outputName splits the name of an output: STEP.OUTPUT, or as expressions write it,
// STEP.output.outputVariables.OUTPUT.
func outputName(given string) (path, name string) {
	i := strings.LastIndex(given, ".")
	if i < 0 {
		return "", given
	}
	return strings.TrimSuffix(given[:i], ".output.outputVariables"), given[i+1:]
}

// endsWithPath reports whether a path ends with whole parts.
func endsWithPath(path, end string) bool {
	return end != "" && (path == end || strings.HasSuffix(path, "."+end))
}
