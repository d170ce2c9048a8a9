// Command customrunner is a small delegate. It runs stages in Docker and on the host, and two additional task types,
// one of which needs a secret. It serves metrics and health, and it drains on the first interrupt.
//
// Start a manager (go run ./examples/manager server), which prints an account's secret and an API token. Then start
// this program:
//
//	TOKEN=<the account's secret> RUNNER_SECRET_DEPLOY=s3cr3t go run ./examples/customrunner
//
// and submit a task of type "word_count", or one of type "deploy" with the data
// {"target":"staging","key":"${{secrets.env://DEPLOY}}"}:
//
//	curl -H 'Authorization: Bearer <the API token>' 'http://127.0.0.1:3460/api/tasks?accountId=demo' \
//	    -d '{"type":"word_count","data":{"text":"how many words"},"sync":true}'
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/capacity"
)

func countWords(_ context.Context, req *task.Request[struct{ Text string }]) (map[string]int, error) {
	return map[string]int{"words": len(strings.Fields(req.Data.Text))}, nil
}

func deploy(ctx context.Context, req *task.Request[struct{ Target, Key string }]) (string, error) {
	if req.Data.Target == "" {
		return "", task.BadRequest(errors.New("target is empty"))
	}
	logger.FromContext(ctx).Info().Str("key", req.Data.Key).Msg("deploying") // shows the key as ******
	return "deployed to " + req.Data.Target, nil
}

func serve(ctx context.Context, url, account, secret, metricsAddress, state string, signals ...os.Signal) error {
	log, _, err := logger.New(logger.Config{Format: logger.Console})
	if err != nil {
		return err
	}
	c, err := client.New(url, account, secret, client.WithLogger(log))
	if err != nil {
		return err
	}
	// Docker containers and host processes
	machine, err := local.New(local.Config{Host: host.Config{Hidden: []string{state}, Log: log}})
	if err != nil {
		return err
	}
	stages := transaction.New(machine, transaction.WithSlots(capacity.NewSlots(2)), transaction.WithLedger(state), transaction.WithLogger(log))
	tasks, registry := metrics.NewTasks("word_count", "deploy"), prometheus.NewRegistry()
	resolve := routersecrets.Resolve(secrets.ResolverConfig{Providers: secrets.Providers{"env": secrets.Env("RUNNER_SECRET_")}})
	routes := router.RouteMap{"word_count": task.HandlerFunc(countWords), "deploy": task.HandlerFunc(deploy)}.Merge(stages.Routes())
	p := poller.New(c, router.New(routes, router.WithMiddleware(router.Metrics(tasks.Observe)), router.Standard(log, resolve)),
		poller.WithStages(stages), poller.WithTags("custom"), poller.WithLogger(log), poller.WithSignals(signals...))
	registry.MustRegister(tasks, metrics.Poller(p, stages.Slots()))
	server, err := telemetry.Listen(ctx, metricsAddress, "", telemetry.Handler(registry, metrics.Live(p), metrics.Ready(p)), log)
	if err != nil {
		return err
	}
	return errors.Join(p.Run(ctx, 16), server.Close(ctx))
}

// A command line is visible to all users of a machine, so the secret is in the environment.
func main() {
	host.Supervise()
	err := serve(context.Background(), cmp.Or(os.Getenv("URL"), "http://127.0.0.1:3460"), cmp.Or(os.Getenv("ACCOUNT_ID"), "demo"),
		os.Getenv("TOKEN"), "127.0.0.1:3002", cmp.Or(os.Getenv("LEDGER_DIR"), "customrunner-ledger"), os.Interrupt, syscall.SIGTERM)
	if err != nil {
		fmt.Fprintln(os.Stderr, "customrunner:", err)
		os.Exit(1)
	}
}
