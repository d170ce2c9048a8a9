package main

import (
	"fmt"
	"os"

	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// The commands of this file need no manager.

// localFlags name files whose content a manager has in its settings.
type localFlags struct {
	Settings  string `placeholder:"FILE" type:"existingfile" help:"File with connectors, step types, infrastructure and secrets (docs/pipelines.md)."`
	Templates string `placeholder:"FOLDER" type:"existingdir" help:"Folder with templates."`
}

// local is a pipeline with the files that a manager would have.
type local struct {
	request   api.RunRequest
	settings  pipeline.Settings
	templates func(ref, version string) (pipeline.Source, bool)
	secrets   map[string]string
}

// load reads the files. Its parameters are the results of a method request.
func (f *localFlags) load(req api.RunRequest, err error) (*local, error) {
	if err != nil {
		return nil, err
	}
	l := &local{request: api.RunRequest{
		YAML: req.YAML, Name: req.Name, InputSets: req.InputSets, Inputs: req.Inputs, Stages: req.Stages, From: req.From,
		SkipOtherStages: req.SkipOtherStages, Branch: req.Branch, Codebase: req.Codebase,
	}}
	if f.Settings != "" {
		text, err := os.ReadFile(f.Settings)
		if err == nil {
			l.settings, err = pipeline.ReadSettings(text)
		}
		if err != nil {
			return nil, usage("%s: %v", f.Settings, err)
		}
	}
	if f.Templates != "" {
		if l.templates, err = pipeline.Templates(os.DirFS(f.Templates)); err != nil {
			return nil, usage("%s: %v", f.Templates, err)
		}
	}
	return l, nil
}

type lintCommand struct {
	pipelineFlags `embed:""`
	localFlags    `embed:""`

	File string `arg:"" help:"File with the pipeline; - is the standard input."`
}

// Help is the text below the flags.
func (*lintCommand) Help() string {
	return `It needs no manager. The exit code is 0 without errors, and 2 with errors.

Examples:
  $ dlite lint pipeline.yaml`
}

// Run checks a pipeline.
func (c *lintCommand) Run(p *program) error {
	l, err := c.load(c.request(p, c.File))
	if err != nil {
		return err
	}
	problems := pipeline.Lint(l.request, l.settings, l.templates)
	if p.cli.Output == "table" {
		err = p.write(problems.Render(plan.Sources(l.request)...))
	} else {
		if problems == nil {
			problems = pipeline.Problems{}
		}
		err = p.print(map[string]pipeline.Problems{"problems": problems}, table{})
	}
	if err == nil && problems.Errors() {
		err = &codeError{"the pipeline has errors", exitUsage}
	}
	return err
}

type explainCommand struct {
	selectionFlags `embed:""`
	localFlags     `embed:""`

	File   string            `arg:"" help:"File with the pipeline; - is the standard input."`
	Result map[string]string `mapsep:"none" placeholder:"STEP.OUTPUT=VALUE" help:"Output of a step, such as build.VERSION=1.2; may be repeated."`
}

// Help is the text below the flags.
func (*explainCommand) Help() string {
	return `It needs no manager. The steps are assumed to succeed. -o json has the payloads.

Examples:
  $ dlite explain pipeline.yaml --branch main`
}

// Run explains a pipeline.
func (c *explainCommand) Run(p *program) error {
	l, err := c.load(c.request(p, c.File))
	if err != nil {
		return err
	}
	e, err := pipeline.Explain(p.ctx, l.request, c.Result, l.settings, l.templates)
	if err != nil {
		return usage("%v", plan.WithPlaces(err, l.request))
	}
	if p.cli.Output == "table" {
		err = p.write(plan.Text(e, "--result", nil))
	} else {
		err = p.print(e, table{})
	}
	if err == nil && len(e.Missing) > 0 {
		return &codeError{"a run needs " + plan.Connectors(e.Missing) + " in connectors of the settings: add them to the file of --settings", exitFailed}
	}
	run := object{run: &api.Run{Status: e.Run.Status, EndedAt: e.Run.EndedAt}}
	if status, _, code := run.result(); err == nil && code > exitOK {
		err = &codeError{fmt.Sprintf("the run would end as %s: the table has the reasons, and --result sets other results of steps", status), code}
	}
	return err
}

type schemaCommand struct{}

// Help is the text below the flags.
func (*schemaCommand) Help() string {
	return `Examples:
  $ dlite schema`
}

// Run prints the schema.
func (*schemaCommand) Run(p *program) error {
	schema, err := pipeline.Schema()
	if err != nil {
		return fmt.Errorf("making the schema: %w", err)
	}
	return p.write(string(schema) + "\n")
}
