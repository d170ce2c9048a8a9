// Command minimal is the smallest delegate: it has one task type and no stages. Its benchmark
// measures the cost of an idle delegate. To write a delegate, copy examples/customrunner
// instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:3460", "the manager's `address`")
	account := flag.String("account", "demo", "the account's `id`")
	flag.Parse()
	if err := run(*url, *account, os.Getenv("TOKEN")); err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

func run(url, account, secret string) error {
	log, _, err := logger.New(logger.Config{Format: logger.Console})
	if err != nil {
		return err
	}
	c, err := client.New(url, account, secret)
	if err != nil {
		return err
	}
	echo := task.HandlerFunc(func(_ context.Context, r *task.Request[any]) (any, error) { return r.Data, nil })
	routes := router.New(router.RouteMap{"echo": echo}, router.Standard(log))
	p := poller.New(c, routes, poller.WithLogger(log), poller.WithSignals(os.Interrupt, syscall.SIGTERM))
	return p.Run(context.Background(), 16)
}
