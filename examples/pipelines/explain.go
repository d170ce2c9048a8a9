package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// explainCommand shows what a pipeline would run.
type explainCommand struct {
	selection

	outputs listFlag
	format  string
	url     string
	account string
}

func newExplainCommand() *ffcli.Command {
	c := &explainCommand{}
	fs := flag.NewFlagSet("explain", flag.ContinueOnError)
	c.register(fs)
	fs.Var(&c.outputs, "output", "`STEP.OUTPUT=value` of a step, such as build.VERSION=1.2; may be repeated")
	fs.StringVar(&c.url, "url", "", "`address` of a manager, to name the delegates that could take each stage; the variable API_TOKEN has its token")
	fs.StringVar(&c.account, "account", "", "`id` of the account at the manager")
	fs.StringVar(&c.format, "o", "text", "text or json; json has the payloads")
	return &ffcli.Command{
		Name: "explain", ShortUsage: "pipelines explain <file> [flags]", ShortHelp: "show what a pipeline would run, and why not", FlagSet: fs,
		Exec: func(ctx context.Context, args []string) error {
			args, err := program.Arguments(fs, args, "file")
			if err != nil {
				return err
			}
			return c.explain(ctx, os.Stdout, args[0])
		},
	}
}

func (c *explainCommand) explain(ctx context.Context, out io.Writer, file string) error {
	if c.format != "text" && c.format != "json" {
		return exitError{fmt.Errorf("-o %s: use text or json", c.format), 2}
	}
	e, err := c.plan(ctx, file)
	if err != nil {
		return exitError{err, 2}
	}
	delegates, err := c.delegates(ctx)
	if err != nil {
		return exitError{err, 2}
	}
	candidates := candidatesOf(e, delegates)
	if c.format == "json" {
		err = json.NewEncoder(out).Encode(struct {
			pipeline.Explanation

			Delegates map[string][]candidate `json:"delegates,omitempty"`
		}{e, candidates})
	} else {
		lines := map[string][]string{}
		for path, delegates := range candidates {
			lines[path] = listed(delegates)
		}
		_, err = io.WriteString(out, plan.Text(e, "--output", lines))
	}
	if err != nil {
		return exitError{err, 2}
	}
	if len(e.Missing) > 0 {
		return exitError{fmt.Errorf("a run needs %s in connectors of the settings (docs/pipelines.md)", plan.Connectors(e.Missing)), 1}
	}
	if !machine.Succeeded(e.Run) {
		return exitError{fmt.Errorf("the run would end as %s", e.Run.Status), 1}
	}
	return nil
}

func (c *explainCommand) plan(ctx context.Context, file string) (pipeline.Explanation, error) {
	req, err := c.request(file)
	if err != nil {
		return pipeline.Explanation{}, err
	}
	settings, err := c.readSettings()
	if err != nil {
		return pipeline.Explanation{}, err
	}
	templates, err := c.readTemplates()
	if err != nil {
		return pipeline.Explanation{}, err
	}
	outputs, err := c.outputs.pairs("output", "STEP.OUTPUT=value")
	if err != nil {
		return pipeline.Explanation{}, err
	}
	e, err := pipeline.Explain(ctx, req, outputs, settings, templates)
	return e, plan.WithPlaces(err, req)
}

func newSchemaCommand() *ffcli.Command {
	fs := flag.NewFlagSet("schema", flag.ContinueOnError)
	return &ffcli.Command{
		Name: "schema", ShortUsage: "pipelines schema", ShortHelp: "print the JSON Schema of pipelines, for editors", FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			schema, err := pipeline.Schema()
			if err == nil {
				_, err = os.Stdout.Write(append(schema, '\n'))
			}
			return err
		},
	}
}
