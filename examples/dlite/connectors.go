package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

type connectorsCommand struct {
	Ls   connectorsLs   `cmd:"" default:"1" help:"List the connectors."`
	Set  connectorsSet  `cmd:"" help:"Add or replace a connector."`
	Show connectorsShow `cmd:"" help:"Show a connector."`
	Test connectorsTest `cmd:"" help:"Test a connector from a delegate."`
	Rm   connectorsRm   `cmd:"" help:"Remove a connector."`
}

type connectorsLs struct{}

// Help is the text below the flags.
func (*connectorsLs) Help() string {
	return `Examples:
  $ dlite connectors`
}

// Run lists the connectors.
func (*connectorsLs) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	all, err := client.Connectors(p.ctx)
	if err != nil {
		return err
	}
	t := table{header: []string{"ID", "KIND", "ADDRESS", "SELECTORS", "UPDATED"}, empty: "no connectors: add one with \"dlite connectors set ID FILE\""}
	for i := range all {
		c := &all[i]
		t.add(c.ID, c.ID, c.Kind, c.Address, strings.Join(c.Selectors, ","), stamp(c.UpdatedAt))
	}
	return p.print(all, t)
}

type connectorsShow struct {
	ID string `arg:"" help:"Id of the connector."`
}

// Help is the text below the flags.
func (*connectorsShow) Help() string {
	return `The output has the references of the secrets. The values are only on delegates.

Examples:
  $ dlite connectors show manager
  $ dlite connectors show manager -o yaml`
}

// Run shows a connector.
func (c *connectorsShow) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	con, err := client.Connector(p.ctx, c.ID)
	if err != nil {
		return err
	}
	t := table{}
	t.add(con.ID, "id:", con.ID)
	t.add("", "kind:", con.Kind)
	t.add("", "address:", cmp.Or(con.Address, "that of the kind"))
	for _, name := range slices.Sorted(maps.Keys(con.Secrets)) {
		t.add("", "secret "+name+":", con.Secrets[name])
	}
	for _, name := range slices.Sorted(maps.Keys(con.Options)) {
		first, rest, more := strings.Cut(con.Options[name], "\n")
		if more && rest != "" {
			first += " ..."
		}
		t.add("", "option "+name+":", first)
	}
	t.add("", "selectors:", strings.Join(con.Selectors, ","))
	t.add("", "updated:", stamp(con.UpdatedAt))
	t.names = t.names[:1]
	return p.print(con, t)
}

type connectorsSet struct {
	ID   string `arg:"" help:"Id of the connector."`
	File string `arg:"" help:"File with the connector in JSON or YAML; - is the standard input."`
}

// Help is the text below the flags.
func (*connectorsSet) Help() string {
	return `docs/connectors.md describes connectors and their kinds.

Examples:
  $ dlite connectors set manager connector.yaml`
}

// Run adds or replaces a connector.
func (c *connectorsSet) Run(p *program) error {
	con, err := storeFile(p, c.File, "docs/connectors.md", func(con *api.Connector) { con.ID = c.ID }, (*api.Client).SetConnector)
	if err != nil {
		return err
	}
	p.note("set: \"dlite connectors test %s\" tries it.", con.ID)
	return p.print(con, table{names: []string{con.ID}, rows: [][]string{{con.ID, con.Kind, con.Address}}})
}

type connectorsRm struct {
	ID string `arg:"" help:"Id of the connector."`
}

// Help is the text below the flags.
func (*connectorsRm) Help() string {
	return `Examples:
  $ dlite connectors rm manager`
}

// Run removes a connector.
func (c *connectorsRm) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	return client.DeleteConnector(p.ctx, c.ID)
}

type connectorsTest struct {
	ID       string        `arg:"" help:"Id of the connector."`
	Delegate string        `help:"Name or id of the delegate that tests."`
	Selector []string      `help:"Tag of the delegate that tests, instead of those of the connector; may be repeated."`
	Timeout  time.Duration `default:"20s" help:"Time for the test."`
}

// Help is the text below the flags.
func (*connectorsTest) Help() string {
	return `The exit code is 1 if the test fails. The output then says which part failed and what to do.

Examples:
  $ dlite connectors test manager --delegate build-7
  $ dlite connectors test manager --selector linux`
}

// Run tests a connector.
func (c *connectorsTest) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	r, err := client.TestConnector(p.ctx, c.ID, api.ConnectorTestRequest{Delegate: c.Delegate, Selectors: c.Selector, TimeoutMS: c.Timeout.Milliseconds()})
	if err != nil {
		return err
	}
	t := table{names: []string{c.ID}}
	for _, s := range r.Steps {
		state := "ok"
		if !s.OK {
			state = "failed"
		}
		t.rows = append(t.rows, []string{state, s.Name, fmt.Sprintf("%d ms", s.Millis), s.Message})
		if s.Remedy != "" {
			t.rows = append(t.rows, []string{"", "", "", "-> " + s.Remedy})
		}
	}
	if err := p.print(r, t); err != nil {
		return err
	}
	if !r.OK {
		return &codeError{code: exitFailed}
	}
	return nil
}
