// Command delegate is the bundled delegate: it runs the stages that a manager
// sends it on this machine, on the host and in Docker containers.
//
//	go run ./examples/delegate server --env-file config.env
//
// where config.env holds at least
//
//	ACCOUNT_ID="demo"
//	TOKEN="<the account's secret>"
//	URL="http://127.0.0.1:3460"
//
// "delegate settings" lists every setting; the environment goes before the file.
// The manager has to be there at the start and may come and go afterwards. The
// first interrupt drains: running stages are finished, new ones refused. The
// second one cancels what runs and cleans up. On Linux neither the delegate nor a
// step writes a core dump; a step that wants one raises its limit (ulimit -c). What a delegate that was killed left
// behind is removed when it starts again; so that it finds that, a machine with
// several delegates gives each a NAME or a LEDGER_DIR of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/internal/process"
)

type commands struct {
	Server   serverCommand   `cmd:"" help:"Run the delegate until it is interrupted."`
	Settings settingsCommand `cmd:"" help:"List the settings that config.env may hold."`
}

type serverCommand struct {
	EnvFile string `name:"env-file" help:"File with settings, NAME=value a line. The environment goes before it." placeholder:"FILE"`
}

// Run starts the delegate.
func (c *serverCommand) Run() error {
	if err := process.KeepMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "delegate: warning: a crash may write a core dump, with secrets:", err)
	}
	cfg, warnings, err := loadConfig(c.EnvFile, os.Environ())
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "delegate: warning:", w)
	}
	if err != nil {
		return err
	}
	// Whoever reads our output may be gone before us, as tee is after a Ctrl-C:
	// that must not keep us from cleaning up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// The signals are taken over here, so that the second one is ours as well.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return serve(context.Background(), cfg, signals)
}

type settingsCommand struct{}

// Run prints the settings.
func (settingsCommand) Run() error {
	return describeSettings(os.Stdout)
}

func main() {
	var c commands
	k := kong.Parse(&c, kong.Name("delegate"), kong.Description("Runs the stages of a manager on this machine."), kong.UsageOnError())
	k.FatalIfErrorf(k.Run())
}
