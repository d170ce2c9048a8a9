package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// lintCommand checks a pipeline.
type lintCommand struct {
	inputs

	output string
}

func newLintCommand() *ffcli.Command {
	c := &lintCommand{}
	fs := flag.NewFlagSet("lint", flag.ContinueOnError)
	c.register(fs)
	fs.StringVar(&c.output, "o", "text", "text or json")
	return &ffcli.Command{
		Name: "lint", ShortUsage: "pipelines lint <file> [flags]", ShortHelp: "check a pipeline without running it", FlagSet: fs,
		Exec: func(_ context.Context, args []string) error {
			args, err := program.Arguments(fs, args, "file")
			if err != nil {
				return err
			}
			return c.lint(os.Stdout, args[0])
		},
	}
}

func (c *lintCommand) lint(out io.Writer, file string) error {
	if c.output != "text" && c.output != "json" {
		return exitError{fmt.Errorf("-o %s: use text or json", c.output), 2}
	}
	req, err := c.request(file)
	if err != nil {
		return exitError{err, 2}
	}
	templates, err := c.readTemplates()
	if err != nil {
		return exitError{err, 2}
	}
	settings, err := c.readSettings()
	if err != nil {
		return exitError{err, 2}
	}
	problems := pipeline.Lint(req, settings, templates)
	if c.output == "json" {
		if problems == nil {
			problems = pipeline.Problems{}
		}
		err = json.NewEncoder(out).Encode(map[string]pipeline.Problems{"problems": problems})
	} else {
		_, err = io.WriteString(out, problems.Render(plan.Sources(req)...))
	}
	if err != nil {
		return exitError{err, 2}
	}
	if problems.Errors() {
		return exitError{errors.New("the pipeline has errors"), 1}
	}
	return nil
}
