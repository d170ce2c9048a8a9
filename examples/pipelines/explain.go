package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// explainCommand shows what a pipeline would run.
type explainCommand struct {
	selection

	outputs listFlag
	format  string
}

func newExplainCommand() *ffcli.Command {
	c := &explainCommand{}
	fs := flag.NewFlagSet("explain", flag.ContinueOnError)
	c.register(fs)
	fs.Var(&c.outputs, "output", "`STEP.OUTPUT=value` of a step, such as build.VERSION=1.2; may be repeated")
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
	if c.format == "json" {
		err = json.NewEncoder(out).Encode(e)
	} else {
		_, err = io.WriteString(out, explanation(e))
	}
	if err != nil {
		return exitError{err, 2}
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
	return e, machine.WithPlaces(err, req)
}

// explanation writes an explanation for a person.
func explanation(e pipeline.Explanation) string {
	var b strings.Builder
	for _, n := range e.Run.Nodes {
		if n.Kind == "pipeline" || n.Kind == "strategy" && n.Status == "SUCCEEDED" {
			continue
		}
		indent := strings.Repeat("  ", depth(n))
		title := n.Kind + " " + n.Identifier
		if n.Type != "" && n.Kind == "step" {
			title += " (" + n.Type + ")"
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, title, fate(n))
		for _, line := range facts(n, e.Plans[n.Path]) {
			fmt.Fprintf(&b, "%s    %s\n", indent, line)
		}
	}
	if len(e.Assumed) > 0 {
		fmt.Fprintf(&b, "\nassumed outputs, which --output sets: %s\n", strings.Join(e.Assumed, ", "))
	}
	return b.String()
}

// depth is the level of a node: 0 for a stage.
func depth(n pipeline.Node) int {
	_, below, ok := strings.Cut(n.Path, ".spec.execution.")
	if !ok {
		return 0
	}
	return strings.Count("."+below, ".steps.")
}

// fate reports whether a node runs.
func fate(n pipeline.Node) string {
	switch n.Status {
	case "SUCCEEDED":
		return "runs"
	case "SKIPPED":
		return "skipped: " + n.Reason
	}
	text := string(n.Status)
	if n.Reason != "" {
		text += ": " + n.Reason
	}
	return text
}

// facts are the lines below a node.
func facts(n pipeline.Node, p pipeline.Plan) []string {
	var lines []string
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, name+": "+text)
		}
	}
	if p.When != "" {
		when := p.When
		if p.Condition != "" {
			when += " and " + p.Condition
		}
		add("when", when)
	}
	for _, v := range n.Evaluated {
		value := v.Value
		if v.Error != "" {
			value = "error: " + v.Error
		}
		add(v.Field, v.Text+" = "+oneLine(value))
	}
	if p.Stage != nil {
		add("delegate", strings.TrimSpace("driver "+p.Stage.Infra+" "+selectors(p.Stage.Selectors)))
	}
	if p.Step != nil {
		var data struct {
			Image string `json:"image"`
		}
		if json.Unmarshal(p.Step.Data, &data) == nil && data.Image != "" {
			add("image", data.Image)
		}
	}
	if p.Timeout > 0 && n.Status != "SKIPPED" {
		add("timeout", p.Timeout.Round(time.Second).String())
	}
	add("on failure", strings.Join(p.Failure, "; "))
	return lines
}

func selectors(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return "with the tags " + strings.Join(tags, ", ")
}

// oneLine shortens a value to one line.
func oneLine(text string) string {
	const most = 100
	text = strings.ReplaceAll(text, "\n", "\\n")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
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
