package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/delegate-io/dlite/manager/api"
)

// maxFile bounds a file that the manager gets, in bytes.
const maxFile = 32 << 20

// read reads a file, or the standard input for -.
func (p *program) read(file string) ([]byte, error) {
	in := p.in
	if file != "-" {
		var err error
		if in, err = os.Open(file); err != nil {
			return nil, usage("%v: give the path of a file, or - for the standard input", err)
		}
		defer func() { _ = in.Close() }()
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, usage("reading %s: %v: give another file, or - for the standard input", file, err)
	case len(text) > maxFile:
		return nil, usage("%s has more than %d bytes: make it smaller", file, maxFile)
	}
	return text, nil
}

// decode reads a JSON or YAML file into v. It refuses unknown members; page describes the known ones.
func (p *program) decode(file, page string, v any) error {
	text, err := p.read(file)
	if err != nil {
		return err
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		return usage("%s is neither YAML nor JSON: correct it at this place: %s", file, yaml.FormatError(err, false, false))
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return usage("%s: %v: correct the member, %s describes all", file, err, page)
	}
	return nil
}

// storeFile stores the object in a file, which page describes, under the id that name sets, and returns what the manager has stored.
func storeFile[T any](p *program, file, page string, name func(*T), store func(*api.Client, context.Context, T) (T, error)) (v T, err error) {
	if err := p.decode(file, page, &v); err != nil {
		return v, err
	}
	client, err := p.client()
	if err != nil {
		return v, err
	}
	name(&v)
	return store(client, p.ctx, v)
}

type submitCommand struct {
	File string `arg:"" help:"File with the stage in JSON or YAML; - is the standard input."`
	ID   string `help:"Id of the stage, in place of the one in the file."`
	Wait bool   `short:"w" help:"Follow the stage; its result is the exit code."`
}

// Help is the text below the flags.
func (*submitCommand) Help() string {
	return `docs/stages.md describes stages.

Examples:
  $ dlite submit stage.yaml --id build-1 --wait`
}

// Run submits a stage.
func (c *submitCommand) Run(p *program) error {
	var req api.StageRequest
	if err := p.decode(c.File, "docs/stages.md", &req); err != nil {
		return err
	}
	if c.ID != "" {
		req.ID = c.ID
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	s, err := client.SubmitStage(p.ctx, req)
	if err != nil {
		return err
	}
	return p.started(client, object{stage: &s}, c.Wait)
}

type lsCommand struct {
	Kind     string            `arg:"" optional:"" enum:"runs,stages,pipelines,triggers" default:"runs" help:"runs, stages, pipelines or triggers."`
	Status   string            `help:"Only those with the status."`
	Pipeline string            `help:"Only stages of the pipeline."`
	Branch   string            `help:"Only runs of the branch."`
	Label    map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"Only those with the label; may be repeated."`
	Text     string            `help:"Only runs whose pipeline, branch or user has the text."`
	Limit    int               `short:"n" default:"20" help:"The largest number."`
}

// Help is the text below the flags.
func (*lsCommand) Help() string {
	return `Examples:
  $ dlite ls --status FAILED -n 5
  $ dlite ls stages -o json`
}

// Run lists objects.
func (c *lsCommand) Run(p *program) error {
	if c.Limit < 1 {
		return usage("-n is %d: it must be 1 or more", c.Limit)
	}
	if err := c.checkFilters(); err != nil {
		return err
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	switch c.Kind {
	case "stages":
		return c.stages(p, client)
	case "pipelines":
		all, err := collect(client.Pipelines(p.ctx), c.Limit)
		if err != nil {
			return err
		}
		t := table{header: []string{"ID", "VERSION", "CHANGED"}, empty: "no stored pipelines: docs/triggers.md describes them"}
		for i := range all {
			t.add(all[i].ID, all[i].ID, strconv.FormatInt(all[i].Version, 10), ago(all[i].UpdatedAt))
		}
		return p.print(all, t)
	case "triggers":
		all, err := collect(client.Triggers(p.ctx), c.Limit)
		if err != nil {
			return err
		}
		t := table{header: []string{"ID", "KIND", "PIPELINE", "NEXT", "LAST RUN", "ERROR"}, empty: "no triggers: docs/triggers.md describes them"}
		for i := range all {
			v := &all[i]
			t.add(v.ID, v.ID, v.Kind, v.Pipeline, stamp(v.Next), v.LastRun, v.LastError)
		}
		return p.print(all, t)
	}
	all, err := collect(client.Runs(p.ctx, api.RunFilter{Pipeline: c.Pipeline, Status: c.Status, Branch: c.Branch, Labels: c.Label, Text: c.Text}), c.Limit)
	if err != nil {
		return err
	}
	t := table{header: []string{"ID", "PIPELINE", "#", "STATUS", "BRANCH", "STARTED", "TOOK", "REASON"}, empty: "no runs: start one with \"dlite run FILE\", or see \"dlite ls stages\""}
	for i := range all {
		r := &all[i]
		t.add("run/"+r.ID, r.ID, r.Pipeline, strconv.FormatInt(r.Number, 10), r.Status, r.Branch, ago(r.CreatedAt), took(r.CreatedAt, r.EndedAt), short(r.Reason))
	}
	return p.print(all, t)
}

// checkFilters refuses filters that the list does not have: its ids may be the arguments of an abort.
func (c *lsCommand) checkFilters() error {
	if c.Kind == "runs" {
		return nil
	}
	if c.Branch != "" || c.Text != "" {
		return usage("--branch and --text select runs, not %s: leave them out", c.Kind)
	}
	if c.Kind != "stages" && (c.Status != "" || c.Pipeline != "" || len(c.Label) > 0) {
		return usage("--status, --pipeline and --label select runs and stages, not %s: leave them out", c.Kind)
	}
	return nil
}

func (c *lsCommand) stages(p *program, client *api.Client) error {
	all, err := collect(client.Stages(p.ctx, api.StageFilter{Status: api.Status(c.Status), Pipeline: c.Pipeline, Labels: c.Label}), 0)
	if err != nil {
		return err
	}
	slices.Reverse(all) // the newest first, as with runs
	all = all[:min(len(all), c.Limit)]
	t := table{header: []string{"ID", "PIPELINE", "STATUS", "PLACE", "SUBMITTED", "TOOK", "REASON"}, empty: "no stages: submit one with \"dlite submit FILE\""}
	for i := range all {
		s := &all[i]
		place, reason := "", s.Error
		if s.Place > 0 {
			place = strconv.Itoa(s.Place)
		}
		if reason == "" {
			reason = s.Reason
		}
		t.add("stage/"+s.ID, s.ID, s.Pipeline, string(s.Status), place, ago(s.SubmittedAt), took(s.StartedAt, s.EndedAt), short(reason))
	}
	return p.print(all, t)
}

// short cuts a reason for a table.
func short(text string) string {
	const most = 80
	text, _, _ = strings.Cut(text, "\n")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "..."
	}
	return text
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

type showCommand struct {
	Ref string `arg:"" help:"Id of a run or a stage."`
}

// Help is the text below the flags.
func (*showCommand) Help() string {
	return `Examples:
  $ dlite show hello
  $ dlite show stage/build-1 -o yaml`
}

// Run shows an object.
func (c *showCommand) Run(p *program) error {
	_, o, err := p.find(c.Ref)
	if err != nil {
		return err
	}
	t := table{header: []string{"PART", "STATUS", "TOOK", "REASON"}}
	for _, part := range o.parts() {
		t.add(o.name(), strings.Repeat("  ", part.depth)+part.name(), part.Status, took(part.Started, part.Ended), part.Reason)
	}
	status, reason, _ := o.result()
	t.add(o.name(), o.name(), status, "", reason)
	t.names = []string{o.name()}
	if err := p.print(o.value(), t); err != nil || p.cli.Output != "table" {
		return err
	}
	return p.explainNodes(o)
}

// explainNodes prints the values that decided nodes, and the failed tests of steps.
func (p *program) explainNodes(o object) error {
	var t table
	if o.run != nil {
		for i := range o.run.Nodes {
			n := &o.run.Nodes[i]
			for _, v := range n.Values {
				t.add("", n.Identifier, v.Name, v.Value)
			}
			for _, name := range slices.Sorted(maps.Keys(n.Outputs)) {
				t.add("", n.Identifier, "output "+name, n.Outputs[name])
			}
			t.results(n.Identifier, n.Tests, n.Artifact)
			if n.ArtifactBytes > 0 {
				t.add("", n.Identifier, "artifact", strconv.Itoa(n.ArtifactBytes)+" bytes, too large for the run: the stage at the manager has it")
			}
		}
	} else {
		for i := range o.stage.Steps {
			s := &o.stage.Steps[i]
			t.results(s.ID, s.Tests, s.Artifact)
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	return p.write("\n" + t.text(false))
}

// results adds the failed tests and the artifact of a step.
func (t *table) results(step string, tests *api.TestSummary, artifact []byte) {
	if tests != nil {
		for _, f := range tests.Failures {
			t.add("", step, "failed test "+f.Name, short(f.Message))
		}
		if more := tests.Failed + tests.Errors - len(tests.Failures); more > 0 {
			t.add("", step, "failed tests", strconv.Itoa(more)+" more: the reports have them")
		}
	}
	if len(artifact) > 0 {
		t.add("", step, "artifact", short(string(artifact)))
	}
}

type abortCommand struct {
	Refs   []string `arg:"" name:"id" help:"Ids of runs or stages."`
	Node   string   `help:"Part of one run, by its path or as stage/step."`
	Reason string   `help:"Why, for people."`
}

// Help is the text below the flags.
func (*abortCommand) Help() string {
	return `Each object has its own result. The exit code comes from the first failure.

Examples:
  $ dlite abort again --reason "not needed"`
}

type abortResult struct {
	Name   string `json:"name"`
	Status string `json:"status,omitempty"`
	Error  string `json:"error_msg,omitempty"`
}

// Run aborts objects.
func (c *abortCommand) Run(p *program) error {
	if c.Node != "" && len(c.Refs) > 1 {
		return usage("--node belongs to one run: give one id")
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	var failed error
	results := []abortResult{}
	t := table{header: []string{"NAME", "STATUS", "RESULT"}}
	for _, ref := range c.Refs {
		result, err := c.abort(p, client, ref)
		if err != nil {
			result.Error = err.Error()
			failed = cmp.Or(failed, err)
		}
		results = append(results, result)
		text := "is being aborted"
		if result.Error != "" {
			text = result.Error
		}
		t.add(result.Name, result.Name, result.Status, text)
	}
	if err := p.print(results, t); err != nil || failed == nil {
		return err
	}
	code, _ := classify(p.ctx, failed)
	return &codeError{"not all were aborted: \"dlite ls\" shows what runs", code}
}

func (c *abortCommand) abort(p *program, client *api.Client, ref string) (abortResult, error) {
	o, err := find(p.ctx, client, ref)
	if err != nil {
		return abortResult{Name: ref}, err
	}
	result := abortResult{Name: o.name()}
	if o.stage != nil {
		s, err := client.AbortStage(p.ctx, o.stage.ID)
		result.Status = string(s.Status)
		return result, err
	}
	order := api.Order{By: os.Getenv("USER"), Reason: c.Reason}
	if c.Node != "" {
		order.Node = stagePath(c.Node)
	}
	r, err := client.AbortRun(p.ctx, o.run.ID, order)
	result.Status = r.Status
	return result, err
}
