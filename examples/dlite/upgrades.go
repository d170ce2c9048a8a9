package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

type upgradesCommand struct {
	Set      upgradesSet      `cmd:"" help:"Begin an update, or change it."`
	Show     upgradesShow     `cmd:"" default:"1" help:"Show the update of the delegates."`
	Pause    upgradesPause    `cmd:"" help:"Permit no upgrades for now."`
	Continue upgradesContinue `cmd:"" help:"Continue a paused update, or one that failures have stopped."`
	Rm       upgradesRm       `cmd:"" help:"End the update."`
}

type upgradesShow struct{}

// Help is the text below the flags.
func (*upgradesShow) Help() string {
	return `Examples:
  $ dlite upgrades`
}

// Run shows the update.
func (*upgradesShow) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	u, err := client.Upgrade(p.ctx)
	if err != nil {
		return noUpdate(err)
	}
	return p.printUpgrade(&u)
}

// noUpdate adds to the error of a missing update what to do.
func noUpdate(err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return fmt.Errorf("there is no update: begin one with \"dlite upgrades set VERSION\": %w", err)
	}
	return err
}

// printUpgrade prints an update as a table: the delegates that are away or have failed, below a line about all.
func (p *program) printUpgrade(u *api.Upgrade) error {
	var versions []string
	for _, v := range slices.Sorted(maps.Keys(u.Versions)) {
		name := v
		if name == "" {
			name = "unknown"
		}
		versions = append(versions, fmt.Sprintf("%d %s", u.Versions[v], name))
	}
	t := table{header: []string{"DELEGATE", "HOST", "FROM", "TO", "STATE", "SINCE", "REASON"}, empty: "no delegate is away, and none has failed"}
	for _, part := range []struct {
		state string
		list  []api.UpgradeDelegate
	}{{"away", u.Away}, {"failed", u.Failed}} {
		for i := range part.list {
			d := &part.list[i]
			t.add(d.Name, d.Name, d.Host, d.From, d.To, part.state, stamp(d.At), short(d.Reason))
		}
	}
	p.note("%s to %s, %s at once: %d returned, %d away, %d of %d failures. Delegates: %s", u.State, u.Version, u.Share, u.Returned, len(u.Away),
		len(u.Failed), u.MaxFailures, strings.Join(versions, ", "))
	return p.print(u, t)
}

type upgradesSet struct {
	Version      string        `arg:"" help:"Version that the delegates shall have, such as v1.2.3."`
	Share        string        `help:"How many delegates may be away at once: a number, or a share of those that are alive; the default is 10%."`
	MaxFailures  int           `help:"Number of failures after which the update stops; the default is 1."`
	ReturnWithin time.Duration `help:"How long a delegate may be away until it counts as failed; the default is 30m."`
}

// Help is the text below the flags.
func (*upgradesSet) Help() string {
	return `Delegates with UPGRADE_CHECK_INTERVAL_SECS ask for permission, and verify the release themselves. docs/upgrading.md describes it.

Examples:
  $ dlite upgrades set v1.3.0 --share 5%
  $ dlite upgrades set v1.3.0 --share 2 --max-failures 3`
}

// Run begins or changes the update.
func (c *upgradesSet) Run(p *program) error {
	return p.setUpgrade(api.Upgrade{Version: c.Version, Share: c.Share, MaxFailures: c.MaxFailures, ReturnMS: c.ReturnWithin.Milliseconds()})
}

func (p *program) setUpgrade(u api.Upgrade) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	if u, err = client.SetUpgrade(p.ctx, u); err != nil {
		return err
	}
	p.note("the update is %s: \"dlite upgrades\" shows it.", u.State)
	return nil
}

// changeUpgrade sets the update again, with a change. That forgets its failures.
func (p *program) changeUpgrade(change func(*api.Upgrade)) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	u, err := client.Upgrade(p.ctx)
	if err != nil {
		return noUpdate(err)
	}
	change(&u)
	return p.setUpgrade(u)
}

type upgradesPause struct{}

// Help is the text below the flags.
func (*upgradesPause) Help() string {
	return `Delegates that are away finish their upgrades.

Examples:
  $ dlite upgrades pause`
}

// Run pauses the update.
func (*upgradesPause) Run(p *program) error {
	return p.changeUpgrade(func(u *api.Upgrade) { u.Paused = true })
}

type upgradesContinue struct{}

// Help is the text below the flags.
func (*upgradesContinue) Help() string {
	return `The failures are forgotten: delegates that have failed may try again.

Examples:
  $ dlite upgrades continue`
}

// Run continues the update.
func (*upgradesContinue) Run(p *program) error {
	return p.changeUpgrade(func(u *api.Upgrade) { u.Paused = false })
}

type upgradesRm struct{}

// Help is the text below the flags.
func (*upgradesRm) Help() string {
	return `Examples:
  $ dlite upgrades rm`
}

// Run ends the update.
func (*upgradesRm) Run(p *program) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	if err := client.DeleteUpgrade(p.ctx); err != nil {
		return noUpdate(err)
	}
	p.note("ended: delegates that check for upgrades follow the stable version of their releases.")
	return nil
}
