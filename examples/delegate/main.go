// Command delegate is the bundled delegate: it runs the stages that a manager sends on
// this machine, on the host and in Docker containers, on machines of pools and in pods.
//
//	go run ./examples/delegate server --env-file config.env
//
// The file config.env holds at least
//
//	ACCOUNT_ID="demo"
//	TOKEN="<the account's secret>"
//	URL="http://127.0.0.1:3460"
//
// "delegate settings" lists every setting. The environment wins over the file, and an
// unknown name in the file is an error. "delegate check" checks the settings, the
// certificates, the manager and its clock, the Docker engine, the disk and the control
// groups, and says what to do about each that fails.
//
// The manager may be away at the start and later. The first interrupt drains: the
// delegate finishes its stages and refuses new ones. The second one cancels what runs
// and cleans up. The delegate removes at its start what a killed one left behind; for
// that, several delegates on one machine need a NAME or a LEDGER_DIR each. On Linux
// neither the delegate nor a step writes a core dump; a step that wants one raises its
// limit (ulimit -c).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/internal/process"
)

type commands struct {
	Server   serverCommand   `cmd:"" help:"Run the delegate until it is interrupted."`
	Check    checkCommand    `cmd:"" help:"Check what the delegate needs, and say what to do about what is missing."`
	Settings settingsCommand `cmd:"" help:"List the settings that config.env may hold."`

	Version     versionCommand   `cmd:"" help:"Print the version."`
	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

type serverCommand struct {
	EnvFile string `name:"env-file" help:"File with settings, NAME=value a line. The environment wins over it." placeholder:"FILE"`
}

// Run starts the delegate.
func (c *serverCommand) Run() error {
	if err := process.ProtectMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "delegate: warning: a crash may write a core dump, with secrets:", err)
	}
	cfg, warnings, err := loadConfig(c.EnvFile, os.Environ())
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "delegate: warning:", w)
	}
	if err != nil {
		return err
	}
	// The reader of the output may end before the delegate, as tee does after a Ctrl-C.
	// The delegate must still clean up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return serve(context.Background(), cfg, nil, os.Interrupt, syscall.SIGTERM)
}

type settingsCommand struct{}

// Run prints the settings.
func (settingsCommand) Run() error {
	return describeSettings(os.Stdout)
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run() error {
	fmt.Println(program.Describe("delegate"))
	return nil
}

func main() {
	var c commands
	k := kong.Parse(&c, kong.Name("delegate"), kong.Description("Runs the stages of a manager on this machine."), kong.UsageOnError(),
		kong.Vars{"version": program.Describe("delegate")})
	k.FatalIfErrorf(k.Run())
}
