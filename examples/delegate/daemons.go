package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/cgi"
	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
)

// daemonsDir is the folder of the records of daemons, in LEDGER_DIR.
const daemonsDir = "daemons"

// daemons runs the daemon sets of the manager.
type daemons struct {
	*daemonset.Runner
	containers *local.Driver
}

// openDaemons starts nothing. It returns nil if the delegate runs no daemon sets. The caller closes them after the
// poller has stopped them.
func openDaemons(cfg config, programs *cgi.Handler, log zerolog.Logger) (*daemons, error) {
	if !cfg.DaemonSets || !cfg.managed() {
		return nil, nil //nolint:nilnil // documented
	}
	c := daemonset.Config{
		State: filepath.Join(cfg.LedgerDir, daemonsDir), Programs: programs.Command, Masks: cfg.masks(),
		Grace: seconds(cfg.CleanupGrace), Labels: map[string]string{driver.LabelDelegate: cfg.Name, driver.LabelAccount: cfg.AccountID}, Log: log,
	}
	d := &daemons{}
	var err error
	// Its only steps are containers, which need no separation from each other on the host.
	d.containers, err = local.New(local.Config{
		Host:   host.Config{WorkDir: cfg.WorkDir, Trusted: true, Grace: c.Grace, Log: log},
		Docker: local.DockerConfig{Host: cfg.DockerHost},
	})
	if err != nil {
		return nil, fmt.Errorf("WORK_DIR: %w", err)
	}
	c.Containers = d.containers
	if d.Runner, err = daemonset.New(c); err != nil {
		return nil, errors.Join(fmt.Errorf("LEDGER_DIR: %w", err), d.containers.Close())
	}
	return d, nil
}

func (d *daemons) close() error {
	if d == nil {
		return nil
	}
	return d.containers.Close()
}
