package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/manager/api"
)

// hereFlags are the flags of a run on this machine.
type hereFlags struct {
	localFlags `embed:""`

	Local      bool   `help:"Run the pipeline on this machine, without a manager, and follow it."`
	SecretFile string `placeholder:"FILE" type:"existingfile" help:"File with lines ID=value for secrets."`
	Trusted    bool   `help:"Let host steps reach everything that you can reach."`
}

// runHere runs a pipeline on this machine: a manager, the pipeline service and a delegate run in this process.
func (c *runCommand) runHere(p *program, req api.RunRequest) error {
	if c.Pipeline != "" {
		return usage("--pipeline is stored at a manager: give a file, or leave out --local")
	}
	l, err := c.load(req, nil)
	if err != nil {
		return err
	}
	if l.secrets, err = machine.ReadSecrets(c.SecretFile); err != nil {
		return usage("%v", err)
	}
	directory, err := os.Getwd()
	if err != nil {
		return usage("%v", err)
	}
	l.request.ID, l.request.User, l.request.Labels = c.ID, req.User, req.Labels
	l.request.Variables = map[string]any{"account": map[string]any{"directory": directory}}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// The process that reads the output may end first, as tee does after a Ctrl-C. The run must still clean up.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	v := &hereView{program: p}
	run, err := machine.Run(context.WithoutCancel(p.ctx), machine.Config{
		Settings: l.settings, Templates: l.templates, Secrets: l.secrets, Trusted: c.Trusted, Builtins: storage.Builtins(), Log: zerolog.Nop(),
	}, l.request, v, signals)
	if err != nil {
		return usage("%v", plan.WithPlaces(err, l.request))
	}
	if v.outcome != nil {
		return v.outcome
	}
	return object{run: &api.Run{ID: run.ID, Status: run.Status, EndedAt: run.EndedAt}}.outcome(false)
}

// hereView shows a run on this machine like a run at a manager.
type hereView struct {
	*program

	outcome error
}

// Note shows a message of the machine.
func (v *hereView) Note(format string, args ...any) { v.note("! "+format, args...) }

// Follow shows the progress of the run.
func (v *hereView) Follow(ctx context.Context, m *machine.Machine, id string) (api.Run, error) {
	token, err := m.Token(24 * time.Hour)
	if err != nil {
		return api.Run{}, err
	}
	client, err := api.New(api.Config{URL: m.URL, Account: machine.Account, Token: token, UserAgent: "dlite"})
	if err != nil {
		return api.Run{}, err
	}
	run, err := client.Run(ctx, id)
	if err != nil {
		return api.Run{}, err
	}
	p := *v.program
	p.ctx, p.here = ctx, true
	v.outcome = p.watch(client, object{run: &run}, true)
	if ctx.Err() != nil {
		return api.Run{}, ctx.Err()
	}
	return m.Pipelines.Run(ctx, machine.Account, id)
}
