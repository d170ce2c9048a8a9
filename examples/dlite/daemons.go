package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
)

type daemonsCommand struct {
	Ls     daemonsLs     `cmd:"" default:"1" help:"List the daemon sets."`
	Set    daemonsSet    `cmd:"" help:"Add or replace a daemon set."`
	Show   daemonsShow   `cmd:"" help:"Show a daemon set on each delegate."`
	Assign daemonsAssign `cmd:"" help:"Add a task to a daemon set."`
	Remove daemonsRemove `cmd:"" help:"Remove a task from a daemon set."`
	Rm     daemonsRm     `cmd:"" help:"Remove a daemon set with its tasks."`
}

type daemonsLs struct{}

// Help is the text below the flags.
func (*daemonsLs) Help() string {
	return `HEALTHY is the number of delegates on which the daemon set is healthy, of those that match.

Examples:
  $ dlite daemons`
}

// Run lists the daemon sets.
func (*daemonsLs) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	all, err := client.DaemonSets(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"ID", "TYPE", "SELECTORS", "TASKS", "HEALTHY", "ERROR"}, empty: "no daemon sets: add one with \"dlite daemons set ID FILE\""}
	for i := range all {
		s := &all[i]
		healthy, problem := 0, ""
		for _, d := range s.Delegates {
			if d.Healthy {
				healthy++
			} else if problem == "" {
				problem = d.Error
			}
		}
		t.add(s.ID, s.ID, s.Type, strings.Join(s.Selectors, ","), fmt.Sprint(len(s.Tasks)), fmt.Sprintf("%d/%d", healthy, len(s.Delegates)), short(problem))
	}
	return p.print(all, t)
}

type daemonsShow struct {
	ID string `arg:"" help:"Id of the daemon set."`
}

// Help is the text below the flags.
func (*daemonsShow) Help() string {
	return `Examples:
  $ dlite daemons show watcher
  $ dlite daemons show watcher -o yaml`
}

// Run shows a daemon set.
func (c *daemonsShow) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	s, err := client.DaemonSet(p.ctx, c.ID)
	if err != nil {
		return err
	}
	t := table{header: []string{"DELEGATE", "HEALTHY", "SINCE", "TASKS", "ERROR"}, empty: "no delegate has the tags of the daemon set"}
	for _, d := range s.Delegates {
		name := d.DelegateName
		if name == "" {
			name = d.DelegateID
		}
		t.add(d.DelegateID, name, fmt.Sprint(d.Healthy), stamp(d.ReportedAt), strings.Join(d.TaskIDs, ","), d.Error)
	}
	return p.print(s, t)
}

type daemonsSet struct {
	ID   string `arg:"" help:"Id of the daemon set."`
	File string `arg:"" help:"File with the daemon set in JSON or YAML; - is the standard input."`
}

// Help is the text below the flags.
func (*daemonsSet) Help() string {
	return `docs/daemons.md describes daemon sets. The tasks of a replaced daemon set stay.

Examples:
  $ dlite daemons set watcher daemon.yaml`
}

// Run adds or replaces a daemon set.
func (c *daemonsSet) Run(p *program) error {
	s, err := storeFile(p, c.File, "docs/daemons.md", func(s *api.DaemonSet) { s.ID = c.ID }, (*api.Client).SetDaemonSet)
	if err != nil {
		return err
	}
	return p.print(s, table{names: []string{s.ID}, rows: [][]string{{s.ID, "delegates:", fmt.Sprint(len(s.Delegates))}}})
}

type daemonsRm struct {
	ID string `arg:"" help:"Id of the daemon set."`
}

// Help is the text below the flags.
func (*daemonsRm) Help() string {
	return `Examples:
  $ dlite daemons rm watcher`
}

// Run removes a daemon set.
func (c *daemonsRm) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	return client.DeleteDaemonSet(p.ctx, c.ID)
}

type daemonsAssign struct {
	ID       string   `arg:"" help:"Id of the daemon set."`
	Task     string   `arg:"" help:"Id of the task."`
	File     string   `arg:"" optional:"" help:"File with the data of the task in JSON or YAML; - is the standard input. Without it the task has no data."`
	Selector []string `help:"Tag of the delegates that get the task, besides those of the daemon set; may be repeated."`
	One      bool     `help:"Give the task to one delegate, and to another one when that is lost or drains."`
}

// Help is the text below the flags.
func (*daemonsAssign) Help() string {
	return `A task cannot be changed: remove it, and add it under another id.

Examples:
  $ dlite daemons assign watcher repository-1 data.yaml
  $ dlite daemons assign watcher repository-2 data.yaml --one`
}

// Run adds a task.
func (c *daemonsAssign) Run(p *program) error {
	t := api.DaemonTask{ID: c.Task, Selectors: c.Selector}
	if c.One {
		t.Spread = "one"
	}
	if c.File != "" {
		var data json.RawMessage
		if err := p.decode(c.File, "docs/daemons.md", &data); err != nil {
			return err
		}
		t.Data = data
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	if t, err = client.SetDaemonTask(p.ctx, c.ID, t); err != nil {
		return err
	}
	return p.print(t, table{names: []string{t.ID}, rows: [][]string{{t.ID}}})
}

type daemonsRemove struct {
	ID   string `arg:"" help:"Id of the daemon set."`
	Task string `arg:"" help:"Id of the task."`
}

// Help is the text below the flags.
func (*daemonsRemove) Help() string {
	return `Examples:
  $ dlite daemons remove watcher repository-1`
}

// Run removes a task.
func (c *daemonsRemove) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	return client.DeleteDaemonTask(p.ctx, c.ID, c.Task)
}
