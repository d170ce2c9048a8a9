// Command dlite submits, watches and steers stages and runs of pipelines at a manager, from a terminal or a script.
//
//	go install github.com/delegate-io/dlite/examples/dlite@latest
//	dlite login https://manager.example.com --account demo
//	dlite run pipeline.yaml --wait
//	dlite logs hello -f
//
// The manager and the token come from the environment (DLITE_URL, DLITE_ACCOUNT, DLITE_TOKEN), or from the context that
// login has stored. A token is never a flag: other users of the machine can read the arguments of a process.
//
// The exit codes are stable:
//
//	0    the command did its work, and a run or stage that it waited for has succeeded
//	1    the run or stage has failed, or timed out
//	2    wrong arguments, a wrong file, or a pipeline with errors
//	3    the manager refused the call
//	4    there is no such run, stage, delegate or schedule
//	5    there is no token, or the token does not permit the call
//	6    the manager cannot be reached, or cannot answer now
//	7    the run or stage was aborted
//	130  the command was interrupted
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/storage"
	"github.com/delegate-io/dlite/manager/api"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitNotFound    = 4
	exitToken       = 5
	exitUnreachable = 6
	exitAborted     = 7
	exitInterrupted = 130
)

// cli is the command line. The help lists the commands in this order.
type cli struct {
	Context string `short:"c" env:"DLITE_CONTEXT" placeholder:"NAME" help:"Context of the manager; the default is the one of the last login."`
	Output  string `short:"o" enum:"table,json,yaml,name" default:"table" help:"Form of the output: table, json, yaml, or name for the ids alone."`

	Login      loginCommand      `cmd:"" help:"Store the address of a manager and its token as a context."`
	Run        runCommand        `cmd:"" help:"Start a run of a pipeline."`
	Submit     submitCommand     `cmd:"" help:"Submit a stage."`
	Lint       lintCommand       `cmd:"" help:"Check a pipeline without running it."`
	Explain    explainCommand    `cmd:"" help:"Show what a pipeline would run, and why not."`
	Schema     schemaCommand     `cmd:"" help:"Print the JSON Schema of pipelines, for editors."`
	Ls         lsCommand         `cmd:"" help:"List runs, stages, pipelines or triggers."`
	Show       showCommand       `cmd:"" help:"Show a run or a stage, with the reason of each status."`
	Watch      watchCommand      `cmd:"" help:"Follow a run or a stage until it ends."`
	Logs       logsCommand       `cmd:"" help:"Print the logs of a run or a stage."`
	Retry      retryCommand      `cmd:"" help:"Run an ended run again, from a stage or as a new run."`
	Approve    approveCommand    `cmd:"" help:"Answer a node of a run that waits for a person."`
	Abort      abortCommand      `cmd:"" help:"Abort runs, stages, or a part of a run."`
	Queue      queueCommand      `cmd:"" help:"Show what waits and runs, and why."`
	Delegates  delegatesCommand  `cmd:"" help:"List the delegates with what they run."`
	Drain      drainCommand      `cmd:"" help:"Let a delegate finish its stages and take no new ones."`
	Pause      pauseCommand      `cmd:"" help:"Assign no work of the account. Submissions wait."`
	Resume     resumeCommand     `cmd:"" help:"End a pause of the account, or the drain of a delegate."`
	Limits     limitsCommand     `cmd:"" help:"Show and set the limits of stages that run at a time."`
	Schedules  schedulesCommand  `cmd:"" help:"Show, set, trigger and remove schedules."`
	Perpetual  perpetualCommand  `cmd:"" help:"Show, set, pause, run and remove perpetual tasks."`
	Connectors connectorsCommand `cmd:"" help:"Show, set, test and remove connectors."`
	Upgrades   upgradesCommand   `cmd:"" help:"Show and set the update of the delegates to a version."`
	Daemons    daemonsCommand    `cmd:"" help:"Show, set and remove daemon sets, and assign their tasks."`
	Tokens     tokensCommand     `cmd:"" help:"Show the contexts, where their tokens are, and whether they are valid."`
	Version    versionCommand    `cmd:"" help:"Print the version of this program."`
	Completion completionCommand `cmd:"" help:"Print a script that completes commands in a shell."`
}

func main() {
	host.Supervise()
	if len(os.Args) > 1 && os.Args[1] == storage.Name { // a step of run --local
		if err := storage.Command().ParseAndRun(context.Background(), os.Args[2:]); err != nil {
			_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", storage.Name, err)
			os.Exit(exitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})
	os.Exit(code)
}

// stdio are the files of the process.
type stdio struct {
	in       *os.File
	out, err io.Writer
}

// program is what commands need.
type program struct {
	stdio
	ctx context.Context //nolint:containedctx // kong passes one value to commands
	cli *cli
	// here means that the manager is in this process: its runs end with it.
	here bool
}

// run executes a command line and returns the exit code. The flag --help ends the process.
func run(ctx context.Context, args []string, io stdio) int {
	var c cli
	parser, err := kong.New(&c, kong.Name("dlite"), kong.Writers(io.out, io.err),
		kong.Description("Submits, watches and steers stages and runs of pipelines. \"dlite login\" comes first.\n\nExit codes: 0 success, 1 failed, 2 usage, 3 refused, 4 not found, 5 token, 6 manager not reachable, 7 aborted."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		_, _ = fmt.Fprintf(io.err, "dlite: %v\n", err)
		return exitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	p := &program{stdio: io, ctx: ctx, cli: &c}
	k, err := parser.Parse(args)
	if err != nil {
		err = usage("%v: see dlite --help", err)
	} else {
		err = k.Run(p)
	}
	if err != nil {
		return p.report(err)
	}
	return exitOK
}

// codeError is an error with an exit code. Without a text, the output has said everything.
type codeError struct {
	text string
	code int
}

func (e *codeError) Error() string { return e.text }

func usage(format string, args ...any) error {
	return &codeError{fmt.Sprintf(format, args...), exitUsage}
}

// report prints an error with what to do next, and returns its exit code.
func (p *program) report(err error) int {
	code, hint := classify(p.ctx, err)
	if text := err.Error(); text != "" {
		_, _ = fmt.Fprintf(p.err, "dlite: %s\n", text)
	}
	if hint != "" {
		_, _ = fmt.Fprintf(p.err, "  %s\n", hint)
	}
	return code
}

func classify(ctx context.Context, err error) (code int, hint string) {
	var own *codeError
	var refused *api.Error
	switch {
	case errors.As(err, &own):
		return own.code, ""
	case ctx.Err() != nil:
		return exitInterrupted, "It goes on at the manager. \"dlite ls\" shows it, and \"dlite abort\" stops it."
	case !errors.As(err, &refused):
		return exitUnreachable, "Check the address with \"dlite tokens\", and the manager."
	}
	switch status := refused.Status; {
	case status == 404:
		return exitNotFound, "\"dlite ls\" and \"dlite ls stages\" list what the manager knows, \"dlite show ID\" the parts of a run."
	case status == 401:
		return exitToken, "Make a token with \"manager token ACCOUNT\", and store it with \"dlite login\"."
	case status == 403:
		return exitToken, "The token is of another account, or permits only reads: \"dlite tokens\" shows it."
	case status == 400:
		return exitUsage, "Correct the named value. \"dlite COMMAND --help\" has examples."
	case status == 413:
		return exitUsage, "Make the file smaller, or store the pipeline at the manager and start it with --pipeline."
	case status == 409:
		return exitRefused, "Its state does not permit this now: \"dlite show ID\" shows the state."
	case status == 429:
		return exitRefused, "Try again later. \"dlite queue\" shows what is in use."
	case status >= 500:
		return exitUnreachable, "Try again later. If it stays so, the log of the manager says why."
	}
	return exitRefused, ""
}
