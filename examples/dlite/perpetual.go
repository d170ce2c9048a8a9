package main

import (
	"cmp"
	"context"
	"strconv"

	"github.com/delegate-io/dlite/manager/api"
)

type perpetualCommand struct {
	Ls     perpetualLs     `cmd:"" default:"1" help:"List the perpetual tasks."`
	Set    perpetualSet    `cmd:"" help:"Add or replace a perpetual task."`
	Show   perpetualShow   `cmd:"" help:"Show a perpetual task with its config and its state."`
	Pause  perpetualPause  `cmd:"" help:"Take a perpetual task from its delegate."`
	Resume perpetualResume `cmd:"" help:"End the pause of a perpetual task."`
	Run    perpetualRun    `cmd:"" help:"Ask for a run of a perpetual task now."`
	Rm     perpetualRm     `cmd:"" help:"Remove a perpetual task."`
}

type perpetualLs struct{}

// Help is the text below the flags.
func (*perpetualLs) Help() string {
	return `Examples:
  $ dlite perpetual`
}

// Run lists the perpetual tasks.
func (*perpetualLs) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	all, err := client.PerpetualTasks(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"ID", "TYPE", "DELEGATE", "RUNS", "FAILURES", "LAST", "NEXT", "NOTE"}, empty: "no perpetual tasks: add one with \"dlite perpetual set ID FILE\""}
	for i := range all {
		t.add(all[i].ID, perpetualRow(&all[i])...)
	}
	return p.print(all, t)
}

// perpetualRow returns the cells of a task.
func perpetualRow(t *api.PerpetualTask) []string {
	holder, note := cmp.Or(t.DelegateName, t.DelegateID, "waits"), cmp.Or(t.Blocked, t.Waiting)
	if t.Paused {
		holder, note = "paused", t.Note
	}
	if note == "" && t.Failures > 0 {
		note = t.LastError
	}
	return []string{
		t.ID, t.Type, holder, strconv.FormatUint(t.Runs, 10), strconv.Itoa(t.Failures), stamp(t.LastRun), stamp(t.NextRun), short(note),
	}
}

// printPerpetual prints a task.
func printPerpetual(p *program, t *api.PerpetualTask) error {
	return p.print(t, table{names: []string{t.ID}, rows: [][]string{perpetualRow(t)}})
}

type perpetualShow struct {
	ID string `arg:"" help:"Id of the perpetual task."`
}

// Help is the text below the flags.
func (*perpetualShow) Help() string {
	return `Examples:
  $ dlite perpetual show watch-app -o json`
}

// Run shows a perpetual task.
func (c *perpetualShow) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	t, err := client.PerpetualTask(p.ctx, c.ID)
	if err != nil {
		return err
	}
	rows := [][]string{
		{"id", t.ID}, {"type", t.Type}, {"delegate", cmp.Or(t.DelegateName, t.DelegateID)}, {"since", stamp(t.AssignedAt)},
		{"waiting", t.Waiting}, {"note", t.Note}, {"runs", strconv.FormatUint(t.Runs, 10)}, {"failed", strconv.FormatUint(t.FailedRuns, 10)},
		{"last run", stamp(t.LastRun)}, {"last success", stamp(t.LastSuccess)}, {"next run", stamp(t.NextRun)},
		{"last error", t.LastError}, {"blocked", t.Blocked}, {"events", strconv.Itoa(t.EventsWaiting)},
		{"config", string(t.Config)}, {"state", string(t.State)},
	}
	return p.print(t, table{names: []string{t.ID}, rows: rows})
}

type perpetualSet struct {
	ID   string `arg:"" help:"Id of the perpetual task."`
	File string `arg:"" help:"File with the task in JSON or YAML; - is the standard input."`
}

// Help is the text below the flags.
func (*perpetualSet) Help() string {
	return `docs/perpetual.md describes perpetual tasks.

Examples:
  $ dlite perpetual set watch-app task.yaml`
}

// Run adds or replaces a perpetual task.
func (c *perpetualSet) Run(p *program) error {
	t, err := storeFile(p, c.File, "docs/perpetual.md", func(t *api.PerpetualTask) { t.ID = c.ID }, (*api.Client).SetPerpetualTask)
	if err != nil {
		return err
	}
	return printPerpetual(p, &t)
}

type perpetualPause struct {
	ID   string `arg:"" help:"Id of the perpetual task."`
	Note string `help:"Reason of the pause, for people."`
}

// Help is the text below the flags.
func (*perpetualPause) Help() string {
	return `Examples:
  $ dlite perpetual pause watch-app --note "the server is moved"`
}

// Run pauses a perpetual task.
func (c *perpetualPause) Run(p *program) error {
	return changePerpetual(p, func(ctx context.Context, client *api.Client) (api.PerpetualTask, error) {
		return client.PausePerpetualTask(ctx, c.ID, c.Note)
	})
}

// changePerpetual makes a call and prints the task.
func changePerpetual(p *program, call func(context.Context, *api.Client) (api.PerpetualTask, error)) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	t, err := call(p.ctx, client)
	if err != nil {
		return err
	}
	return printPerpetual(p, &t)
}

type perpetualResume struct {
	ID string `arg:"" help:"Id of the perpetual task."`
}

// Help is the text below the flags.
func (*perpetualResume) Help() string {
	return `Examples:
  $ dlite perpetual resume watch-app`
}

// Run resumes a perpetual task.
func (c *perpetualResume) Run(p *program) error {
	return changePerpetual(p, func(ctx context.Context, client *api.Client) (api.PerpetualTask, error) {
		return client.ResumePerpetualTask(ctx, c.ID)
	})
}

type perpetualRun struct {
	ID string `arg:"" help:"Id of the perpetual task."`
}

// Help is the text below the flags.
func (*perpetualRun) Help() string {
	return `A run that is active ends first.

Examples:
  $ dlite perpetual run watch-app`
}

// Run asks for a run.
func (c *perpetualRun) Run(p *program) error {
	return changePerpetual(p, func(ctx context.Context, client *api.Client) (api.PerpetualTask, error) {
		return client.RunPerpetualTask(ctx, c.ID)
	})
}

type perpetualRm struct {
	ID string `arg:"" help:"Id of the perpetual task."`
}

// Help is the text below the flags.
func (*perpetualRm) Help() string {
	return `Examples:
  $ dlite perpetual rm watch-app`
}

// Run removes a perpetual task.
func (c *perpetualRm) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	return client.DeletePerpetualTask(p.ctx, c.ID)
}
