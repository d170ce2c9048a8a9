// Command customrunner is a delegate with a task type of its own, on a page.
//
// Start a manager (go run ./examples/manager server), which prints an account's
// secret and an API token, then this:
//
//	TOKEN=<the account's secret> go run ./examples/customrunner -url http://127.0.0.1:3460 -account demo
//
// and submit a task of type "word_count":
//
//	curl -H 'Authorization: Bearer <the API token>' 'http://127.0.0.1:3460/api/tasks?accountId=demo' \
//	    -d '{"type":"word_count","data":{"text":"how many words"},"sync":true}'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
)

type input struct {
	Text string `json:"text"`
}

type output struct {
	Words int `json:"words"`
}

func count(_ context.Context, req *task.Request[input]) (output, error) {
	if req.Data.Text == "" {
		return output{}, task.BadRequest(errors.New("text is empty"))
	}
	return output{Words: len(strings.Fields(req.Data.Text))}, nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "customrunner:", err)
		os.Exit(1)
	}
}

func run() error {
	url := flag.String("url", "http://127.0.0.1:3460", "the manager's `address`")
	account := flag.String("account", "demo", "the account's `id`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	// A command line is there for all to see, so the secret is in the environment.
	return serve(ctx, *url, *account, os.Getenv("TOKEN"))
}

func serve(ctx context.Context, url, account, secret string) error {
	log, _, err := logger.New(logger.Config{Format: logger.Console})
	if err != nil {
		return err
	}
	c, err := client.New(url, account, secret)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	routes := router.New(router.RouteMap{"word_count": task.HandlerFunc(count)}, router.Standard(log))
	p := poller.New(c, routes, poller.WithLogger(log), poller.WithTags("custom"))
	info, err := p.Register(ctx)
	if err != nil {
		return err
	}
	return p.Poll(ctx, 16, info.ID, time.Second)
}
