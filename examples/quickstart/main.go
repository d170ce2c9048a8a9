// Command quickstart runs a pipeline on this machine, from one command: a
// manager, its log service and a delegate in one process, which talk over HTTP
// as they would across a network.
//
//	go run ./examples/quickstart              # the pipeline in pipeline.yaml
//	go run ./examples/quickstart -f FILE      # another one
//	go run ./examples/quickstart -v           # with the manager's and the delegate's log
//
// Steps run on the host; steps with an image need a Docker engine, and are left
// out, loudly, when none answers. The first interrupt finishes the running stage,
// the second one aborts it. The exit code is 0 when every stage succeeded, 1 when
// one did not, and 2 when the pipeline could not be run.
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
)

func main() {
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
	// Whoever reads our output may be gone before us, as tee is after a Ctrl-C:
	// that must not keep us from cleaning up.
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

// run says whether every stage succeeded.
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
