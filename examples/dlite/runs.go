package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
)

// pipelineFlags select the inputs of a pipeline.
type pipelineFlags struct {
	Input           map[string]string `mapsep:"none" placeholder:"PATH=VALUE" help:"Value of an input, such as pipeline.variables.tag=1.2; may be repeated."`
	InputSet        []string          `sep:"none" placeholder:"FILE" type:"existingfile" help:"File with an input set; may be repeated, the last one wins."`
	SkipOtherStages bool              `help:"Leave out stages that are not CI stages."`
}

// selectionFlags select what of a pipeline runs.
type selectionFlags struct {
	pipelineFlags `embed:""`

	Stage  []string `sep:"none" placeholder:"ID" help:"Stage to run; may be repeated. The default is all."`
	From   string   `placeholder:"ID" help:"First stage to run, with all stages after it."`
	Branch string   `help:"The branch of codebase.branch."`
}

// request returns the request for a file; - is the standard input.
func (f *pipelineFlags) request(p *program, file string) (api.RunRequest, error) {
	req := api.RunRequest{Inputs: f.Input, SkipOtherStages: f.SkipOtherStages}
	if file != "" {
		text, err := p.read(file)
		if err != nil {
			return req, err
		}
		req.YAML, req.Name = string(text), file
	}
	for _, set := range f.InputSet {
		text, err := os.ReadFile(set)
		if err != nil {
			return req, usage("%v: --input-set needs the path of a file", err)
		}
		req.InputSets = append(req.InputSets, string(text))
	}
	return req, nil
}

func (f *selectionFlags) request(p *program, file string) (api.RunRequest, error) {
	req, err := f.pipelineFlags.request(p, file)
	req.Stages, req.From, req.Branch = f.Stage, f.From, f.Branch
	if f.Branch != "" {
		req.Codebase = map[string]any{"branch": f.Branch, "build": map[string]any{"type": "branch", "spec": map[string]any{"branch": f.Branch}}}
	}
	return req, err
}

type runCommand struct {
	selectionFlags `embed:""`

	File     string            `arg:"" optional:"" help:"File with the pipeline; - is the standard input."`
	Pipeline string            `placeholder:"ID" help:"Stored pipeline in place of a file."`
	ID       string            `help:"Id of the run. A second call with the same id returns the first run."`
	Label    map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"Label of the run; may be repeated."`
	Wait     bool              `short:"w" help:"Follow the run; its result is the exit code."`

	hereFlags `embed:"" group:"On this machine, with --local:"`
}

// Help is the text below the flags.
func (*runCommand) Help() string {
	return `With --local no manager is needed: the steps run on this machine, and steps with an image in its Docker engine. The first
interrupt aborts such a run and cleans up. The second one ends it at once.

Examples:
  $ dlite run pipeline.yaml --id hello --branch main --label team=web
  $ dlite run pipeline.yaml --input pipeline.variables.who=all --wait
  $ dlite run pipeline.yaml --local`
}

// Run starts a run.
func (c *runCommand) Run(p *program) error {
	if (c.File == "") == (c.Pipeline == "") {
		return usage("give either a file or --pipeline ID: \"dlite ls pipelines\" lists the stored ones")
	}
	req, err := c.request(p, c.File)
	if err != nil {
		return err
	}
	req.ID, req.Pipeline, req.Labels, req.User = c.ID, c.Pipeline, c.Label, os.Getenv("USER")
	if c.Local {
		return c.runHere(p, req)
	}
	if c.hereFlags != (hereFlags{}) {
		return usage("--settings, --templates, --secret-file and --trusted are for a run on this machine: add --local, or configure the manager")
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	run, err := client.StartRun(p.ctx, req)
	if err != nil {
		return withProblems(err)
	}
	return p.started(client, object{run: &run}, c.Wait)
}

// withProblems lists the problems of a refused pipeline.
func withProblems(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	var b strings.Builder
	b.WriteString("the pipeline has errors:")
	for _, problem := range refused.Problems {
		fmt.Fprintf(&b, "\n  %s:%d:%d: %s: %s", clean(problem.File), problem.Line, problem.Column, problem.Severity, clean(problem.Text))
		if problem.Hint != "" {
			fmt.Fprintf(&b, " (%s)", clean(problem.Hint))
		}
	}
	return &codeError{b.String(), exitUsage}
}

// started prints a new run or stage, or follows it.
func (p *program) started(client *api.Client, o object, wait bool) error {
	if wait {
		return p.watch(client, o, true)
	}
	if p.cli.Output == "table" {
		p.note("started. Follow it with \"dlite watch %s\".", o.name())
	}
	status, _, _ := o.result()
	return p.print(o.value(), table{names: []string{o.name()}, rows: [][]string{{o.name(), status}}})
}

type retryCommand struct {
	Run_   string `arg:"" name:"run" help:"Id of an ended run."`
	From   string `placeholder:"NODE" help:"Stage to begin with, by its id or its path. The default is the first one that did not succeed."`
	New    bool   `help:"Start a new run with the same definition and inputs."`
	Reason string `help:"Why, for people."`
	Wait   bool   `short:"w" help:"Follow the run; its result is the exit code."`
}

// Help is the text below the flags.
func (*retryCommand) Help() string {
	return `Stages before the first one keep their results and outputs.

Examples:
  $ dlite retry hello --from build --wait
  $ dlite retry hello --new`
}

// Run runs an ended run again.
func (c *retryCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	order, again := api.Order{By: os.Getenv("USER"), Reason: c.Reason}, client.RetryRun
	if c.From != "" {
		order.Node = stagePath(c.From)
	}
	if c.New {
		if c.From != "" {
			return usage("--new runs the whole pipeline: leave out --from, or leave out --new")
		}
		again = client.RunAgain
	}
	run, err := again(p.ctx, runID(c.Run_), order)
	if err != nil {
		return err
	}
	return p.started(client, object{run: &run}, c.Wait)
}

// stagePath returns the path of a node: an id alone names a stage.
func stagePath(node string) string {
	if strings.HasPrefix(node, "pipeline") {
		return node
	}
	stage, step, ok := strings.Cut(node, "/")
	path := "pipeline.stages." + stage
	if ok {
		path += ".spec.execution.steps." + strings.ReplaceAll(step, "/", ".steps.")
	}
	return path
}

type approveCommand struct {
	Run_    string            `arg:"" name:"run" help:"Id of a run."`
	Node    string            `arg:"" optional:"" help:"Node that waits, by its path or as stage/step. The default is the only one that waits."`
	Reject  bool              `help:"Reject it."`
	Action  string            `placeholder:"ACTION" help:"Action for a failed node that waits for a decision: Retry, Ignore, MarkAsSuccess, MarkAsFailure, Abort, StageRollback, PipelineRollback or RetryStepGroup."`
	Input   map[string]string `mapsep:"none" placeholder:"FIELD=VALUE" help:"Input that the node waits for; may be repeated."`
	Comment string            `help:"Why, for people."`
}

// Help is the text below the flags.
func (*approveCommand) Help() string {
	return `The node must have the status APPROVAL_WAITING, INTERVENTION_WAITING or INPUT_WAITING.
The action MarkAsFailure also ends a step that is RUNNING.

Examples:
  $ dlite approve deploy --action MarkAsSuccess --comment "checked by hand"`
}

// Run answers a node that waits.
func (c *approveCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	run, err := client.Run(p.ctx, runID(c.Run_))
	if err != nil {
		return err
	}
	var waiting []string
	for i := range run.Nodes {
		n := &run.Nodes[i]
		marked := c.Action == "MarkAsFailure" && c.Node != "" && n.Kind == "step" && n.Status == "RUNNING"
		if (marked || strings.HasSuffix(n.Status, "_WAITING")) && (c.Node == "" || n.Path == stagePath(c.Node)) && !hasWaiting(run.Nodes, n.Path) {
			waiting = append(waiting, n.Path+" ("+n.Status+")")
		}
	}
	switch {
	case len(waiting) == 0:
		return &codeError{"no node of this run waits for a person: \"dlite show " + run.ID + "\" shows the nodes", exitRefused}
	case len(waiting) > 1:
		return usage("several nodes wait, name one: %s", strings.Join(waiting, ", "))
	}
	node, _, _ := strings.Cut(waiting[0], " ")
	answer := &api.Answer{Approve: !c.Reject, Action: c.Action, Inputs: c.Input, Comment: c.Comment}
	run, err = client.AnswerRun(p.ctx, run.ID, api.Order{Node: node, By: os.Getenv("USER"), Answer: answer})
	if err != nil {
		return err
	}
	o := object{run: &run}
	return p.print(o.value(), table{names: []string{o.name()}, rows: [][]string{{o.name(), run.Status}}})
}

// hasWaiting reports whether a node below a path waits. Its parents have its status.
func hasWaiting(nodes []api.Node, path string) bool {
	return slices.ContainsFunc(nodes, func(n api.Node) bool {
		return strings.HasSuffix(n.Status, "_WAITING") && strings.HasPrefix(n.Path, path+".")
	})
}
