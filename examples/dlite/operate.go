package main

import (
	"iter"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/manager/api"
)

// collect returns the first elements of a list; 0 is all.
func collect[T any](list iter.Seq2[T, error], most int) ([]T, error) {
	all := []T{}
	for v, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, v)
		if len(all) == most {
			break
		}
	}
	return all, nil
}

type queueCommand struct{}

// Help is the text below the flags.
func (*queueCommand) Help() string {
	return `Examples:
  $ dlite queue`
}

// Run shows the queue.
func (*queueCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	q, err := client.Queue(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"GROUP", "WAITING", "RUNNING", "LIMIT", "OLDEST"}}
	for _, g := range q.Groups {
		limit := ""
		if g.Max > 0 {
			limit = strconv.Itoa(g.Used) + " of " + strconv.Itoa(g.Max)
		}
		t.add(g.Group, g.Group, strconv.Itoa(g.Waiting), strconv.Itoa(g.Running), limit, millis(g.OldestMS))
	}
	if err := p.print(q, t); err != nil || p.cli.Output != "table" {
		return err
	}
	if q.Paused {
		p.note("\nThe account is paused: %s. End it with \"dlite resume\".", clean(q.Note))
	}
	if len(q.Needs) == 0 {
		return nil
	}
	needs := table{header: []string{"\nWAITING", "OLDEST", "TAGS", "WHY"}}
	for _, n := range q.Needs {
		why := n.Reason
		if n.Detail != "" {
			why += ": " + n.Detail
		}
		needs.add("", strconv.Itoa(n.Waiting), millis(n.OldestMS), strings.Join(n.Selectors, ","), why)
	}
	return p.write(needs.text(false))
}

type delegatesCommand struct {
	State string `enum:"any,ALIVE,DRAINING,LOST" default:"any" help:"Only those in the state: ALIVE, DRAINING or LOST."`
}

// Help is the text below the flags.
func (*delegatesCommand) Help() string {
	return `Examples:
  $ dlite delegates
  $ dlite delegates --state ALIVE -o name`
}

// Run lists the delegates.
func (c *delegatesCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	known, err := client.Delegates(p.ctx)
	if err != nil {
		return err
	}
	all := []api.Delegate{}
	t := table{header: []string{"NAME", "STATE", "STAGES", "HEARTBEAT", "VERSION", "TAGS", "RUNS", "ID"}, empty: "no delegates: start one, see docs/stages.md"}
	for i := range known {
		d := &known[i]
		if c.State != "any" && d.State != c.State {
			continue
		}
		all = append(all, *d)
		slots := strconv.Itoa(d.Stages)
		if d.MaxStages > 0 {
			slots += " of " + strconv.Itoa(d.MaxStages)
		}
		t.add(d.ID, d.Name, d.State, slots, ago(d.LastHeartbeat), d.Version, strings.Join(d.Tags, ","), strings.Join(append(d.StageIDs, d.TaskIDs...), ","), d.ID)
	}
	return p.print(all, t)
}

// delegate returns the id of a delegate by its id or its name.
func (p *program) delegate(client *api.Client, name string) (string, error) {
	all, err := client.Delegates(p.ctx)
	if err != nil {
		return "", err
	}
	var found, names []string
	for i := range all {
		d := &all[i]
		if d.ID == name {
			return d.ID, nil
		}
		if d.Name == name && d.State != "LOST" {
			found = append(found, d.ID)
		}
		names = append(names, d.Name)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", &codeError{"there is no delegate " + name + ": there are " + orNone(names, "start one with the address of the manager, the account and its secret"), exitNotFound}
	}
	return "", usage("several delegates have the name %s: give one of the ids %s", name, strings.Join(found, ", "))
}

type drainCommand struct {
	Delegate string `arg:"" help:"Name or id of a delegate."`
}

// Help is the text below the flags.
func (*drainCommand) Help() string {
	return `Examples:
  $ dlite drain local`
}

// Run drains a delegate.
func (c *drainCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	id, err := p.delegate(client, c.Delegate)
	if err != nil {
		return err
	}
	if err := client.Drain(p.ctx, id); err != nil {
		return err
	}
	p.note("draining: \"dlite delegates\" shows what it still runs, \"dlite resume %s\" ends the drain.", c.Delegate)
	return nil
}

type pauseCommand struct {
	Note string `help:"Why, for people: stages that wait show it."`
}

// Help is the text below the flags.
func (*pauseCommand) Help() string {
	return `Examples:
  $ dlite pause --note "new disks"`
}

// Run pauses the account.
func (c *pauseCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	if err := client.Pause(p.ctx, c.Note); err != nil {
		return err
	}
	p.note("paused: running stages continue, others wait. \"dlite resume\" ends the pause.")
	return nil
}

type resumeCommand struct {
	Delegate string `arg:"" optional:"" help:"Name or id of a drained delegate. The default is the account."`
}

// Help is the text below the flags.
func (*resumeCommand) Help() string {
	return `Examples:
  $ dlite resume
  $ dlite resume local`
}

// Run resumes the account or a delegate.
func (c *resumeCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	if c.Delegate == "" {
		if err := client.Resume(p.ctx); err != nil {
			return err
		}
		p.note("resumed: \"dlite queue\" shows what still waits, and why.")
		return nil
	}
	id, err := p.delegate(client, c.Delegate)
	if err != nil {
		return err
	}
	if err := client.Undrain(p.ctx, id); err != nil {
		return err
	}
	p.note("resumed: \"dlite delegates\" shows what it runs.")
	return nil
}

type limitsCommand struct {
	Group string `arg:"" optional:"" help:"Group to limit: account, pipeline:NAME or label:NAME=VALUE."`
	Max   *int   `arg:"" optional:"" help:"The largest number of running stages; 0 removes the limit."`
}

// Help is the text below the flags.
func (*limitsCommand) Help() string {
	return `Examples:
  $ dlite limits pipeline:web 2
  $ dlite limits`
}

// Run shows or sets limits.
func (c *limitsCommand) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	if c.Group != "" {
		if c.Max == nil {
			return usage("give the largest number too: dlite limits %s 2", c.Group)
		}
		if err := client.SetLimit(p.ctx, api.Limit{Group: c.Group, Max: *c.Max}); err != nil {
			return err
		}
		p.note("set: \"dlite limits\" shows all limits, and \"dlite queue\" what waits for them.")
		return nil
	}
	all, err := client.Limits(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"GROUP", "MAX", "RUNNING"}, empty: "no limits: set one with \"dlite limits pipeline:NAME 2\""}
	for _, l := range all {
		t.add(l.Group, l.Group, strconv.Itoa(l.Max), strconv.Itoa(l.Used))
	}
	return p.print(all, t)
}

type schedulesCommand struct {
	Ls      schedulesLs      `cmd:"" default:"1" help:"List the schedules."`
	Set     schedulesSet     `cmd:"" help:"Add or replace a schedule."`
	Trigger schedulesTrigger `cmd:"" help:"Submit the stage or task of a schedule now."`
	Rm      schedulesRm      `cmd:"" help:"Remove a schedule."`
}

type schedulesLs struct{}

// Help is the text below the flags.
func (*schedulesLs) Help() string {
	return `Examples:
  $ dlite schedules`
}

// Run lists the schedules.
func (*schedulesLs) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	all, err := client.Schedules(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"ID", "CRON", "ZONE", "NEXT", "LAST", "ERROR"}, empty: "no schedules: add one with \"dlite schedules set ID FILE\""}
	for i := range all {
		s := &all[i]
		t.add(s.ID, s.ID, s.Cron, s.TimeZone, stamp(s.Next), s.LastID, short(s.LastError))
	}
	return p.print(all, t)
}

type schedulesSet struct {
	ID   string `arg:"" help:"Id of the schedule."`
	File string `arg:"" help:"File with the schedule in JSON or YAML; - is the standard input."`
}

// Help is the text below the flags.
func (*schedulesSet) Help() string {
	return `docs/manager.md describes schedules.

Examples:
  $ dlite schedules set nightly schedule.yaml`
}

// Run adds or replaces a schedule.
func (c *schedulesSet) Run(p *program) error {
	s, err := storeFile(p, c.File, "docs/manager.md", func(s *api.Schedule) { s.ID = c.ID }, (*api.Client).SetSchedule)
	if err != nil {
		return err
	}
	return p.print(s, table{names: []string{s.ID}, rows: [][]string{{s.ID, "next:", stamp(s.Next)}}})
}

type schedulesTrigger struct {
	ID string `arg:"" help:"Id of the schedule."`
}

// Help is the text below the flags.
func (*schedulesTrigger) Help() string {
	return `Examples:
  $ dlite schedules trigger nightly`
}

// Run triggers a schedule.
func (c *schedulesTrigger) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	id, err := client.TriggerSchedule(p.ctx, c.ID)
	if err != nil {
		return err
	}
	return p.print(map[string]string{"id": id}, table{names: []string{id}, rows: [][]string{{id}}})
}

type schedulesRm struct {
	ID string `arg:"" help:"Id of the schedule."`
}

// Help is the text below the flags.
func (*schedulesRm) Help() string {
	return `Examples:
  $ dlite schedules rm nightly`
}

// Run removes a schedule.
func (c *schedulesRm) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	return client.DeleteSchedule(p.ctx, c.ID)
}
