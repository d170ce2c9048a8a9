// Command quickstart runs a pipeline on this machine with one command. A manager, its log service, the pipeline
// service and a delegate run in one process and talk over HTTP, as they would across a network.
//
//	go run ./examples/quickstart              # the pipeline in pipeline.yaml
//	go run ./examples/quickstart -f FILE      # another one
//	go run ./examples/quickstart -v           # with the logs of the parts
//
// Steps run on the host, and steps with an image in a container of the Docker engine. The program makes an image for
// pipelines that use <+variable.account.image>, so that nothing is pulled. If no engine answers, the program prints a
// warning and the variable is empty: the container steps of the built-in pipeline are left out by their conditions.
//
// The secret "token" has the value "not-a-real-token".
//
// The first interrupt aborts the run: its steps end and everything is cleaned up. The second one does not wait for
// them. The exit code is 0 if the run succeeded, 1 if it did not, and 2 if the pipeline could not run. Command pipelines
// has more options.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/examples/internal/plan"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/manager/api"
)

//go:embed pipeline.yaml
var builtIn string

func main() {
	host.Supervise()
	file := flag.String("f", "", "pipeline `file` in YAML; default: the built-in one")
	verbose := flag.Bool("v", false, "show the manager's and the delegate's own log")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The process that reads the output may end before the program, as tee does after a Ctrl-C. The program must
	// still clean up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ok, err := run(context.Background(), os.Stdout, *file, *verbose, signals)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

// run reports whether the run succeeded.
func run(ctx context.Context, out io.Writer, file string, verbose bool, signals <-chan os.Signal) (ok bool, err error) {
	req := api.RunRequest{YAML: builtIn, Name: "pipeline.yaml"}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("reading the pipeline: %w", err)
		}
		req.YAML, req.Name = string(text), file
	}
	log := zerolog.Nop()
	if verbose {
		if log, _, err = logger.New(logger.Config{Level: "debug", Format: logger.Console}); err != nil {
			return false, err
		}
	}
	t := machine.NewTerminal(out)
	name := ""
	if strings.Contains(req.YAML, imageVariable) {
		made, remove, imageErr := ownImageName(ctx)
		if imageErr != nil {
			t.Note("container steps are LEFT OUT: %v", imageErr)
		} else {
			defer func() { err = errors.Join(err, remove()) }()
			name = made
		}
	}
	req.Variables = map[string]any{"account": map[string]any{"image": name}}
	ended, err := machine.Run(ctx, machine.Config{Secrets: map[string]string{"token": "not-a-real-token"}, Log: log}, req, t, signals)
	return machine.Succeeded(ended), plan.WithPlaces(err, req)
}

// imageVariable is the variable with the name of the image that the program makes.
const imageVariable = "variable.account.image"
