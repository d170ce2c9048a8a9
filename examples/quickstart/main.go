// Command quickstart runs a pipeline on this machine with one command. A manager, its log service and a delegate run
// in one process and talk over HTTP, as they would across a network.
//
//	go run ./examples/quickstart              # the pipeline in pipeline.yaml
//	go run ./examples/quickstart -f FILE      # another one
//	go run ./examples/quickstart -v           # with the manager's and the delegate's log
//
// Steps run on the host. Steps with an image need a Docker engine; if none answers, the program prints a warning and
// skips them. The first interrupt finishes the running stage, the second one aborts it. The exit code is 0 if every
// stage succeeded, 1 if a stage did not, and 2 if the pipeline could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/delegate-io/dlite/driver/local/host"
)

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

// run reports whether every stage succeeded.
func run(ctx context.Context, out io.Writer, file string, verbose bool, signals <-chan os.Signal) (ok bool, err error) {
	p, err := readPipeline(file)
	if err != nil {
		return false, err
	}
	t := newTerminal(out)
	if p.containers() {
		name, remove, imageErr := ownImageName(ctx)
		if imageErr != nil {
			t.note("container steps are LEFT OUT: %v", imageErr)
			p = p.withoutContainers()
		} else {
			defer func() { err = errors.Join(err, remove()) }()
			p = p.withImage(name)
		}
	}
	s, err := startServer(ctx, verbose)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d, err := startDelegate(ctx, s.url, s.secret, s.log)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.drain(signals)) }()
	return runPipeline(ctx, p, s, t, signals)
}
