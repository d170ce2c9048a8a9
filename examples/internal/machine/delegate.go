package machine

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	resolve "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
)

// delegate is the delegate's side. Of the manager's side it knows only the address.
type delegate struct {
	client *client.HTTP
	stages *transaction.Stages
	poller *poller.Poller
	polled chan error
}

// executors is the number of steps that run at a time.
const executors = 16

func startDelegate(ctx context.Context, cfg Config, url, secret string) (_ *delegate, err error) {
	d := &delegate{polled: make(chan error, 1)}
	if d.client, err = client.New(url, Account, secret, client.WithLogger(cfg.Log)); err != nil {
		return nil, err
	}
	driver, err := local.New(local.Config{Host: host.Config{
		WorkDir: filepath.Join(cfg.Dir, "work"), Hidden: []string{cfg.Dir}, Trusted: cfg.Trusted, Builtins: cfg.Builtins, Log: cfg.Log,
	}})
	if err != nil {
		return nil, err
	}
	slots := cfg.Stages
	if slots == 0 {
		slots = 2
	}
	d.stages = transaction.New(driver, transaction.WithSlots(capacity.NewSlots(slots)), transaction.WithLogger(cfg.Log),
		transaction.WithLedger(filepath.Join(cfg.Dir, "ledger")))
	routes := router.New(router.RouteMap(d.stages.Routes()).Merge(cfg.Routes), router.Standard(cfg.Log, resolve.Resolve(secrets.ResolverConfig{
		Providers: secrets.Providers{secretScheme: given(cfg.Secrets)},
	})))
	d.poller = poller.New(d.client, routes, append([]poller.Option{
		poller.WithName("local"), poller.WithTags("local", runtime.GOOS, runtime.GOARCH),
		poller.WithStages(d.stages), poller.WithThresholds(cfg.Thresholds), poller.WithHeartbeat(time.Second), poller.WithLogger(cfg.Log),
	}, cfg.Options...)...)
	info, err := d.poller.Register(ctx)
	if err != nil {
		return nil, err
	}
	go func() { d.polled <- d.poller.Poll(context.WithoutCancel(ctx), executors, info.ID, time.Second) }()
	return d, nil
}

// close ends the delegate after its stages, or at once when ctx ends, and removes its resources.
func (d *delegate) close(ctx context.Context) error {
	_ = d.poller.Shutdown(ctx) // Poll returns the relevant error
	polled := <-d.polled
	if errors.Is(polled, poller.ErrShutdown) {
		polled = nil // the delegate was idle, and ended before the first poll
	}
	if ctx.Err() != nil && errors.Is(polled, poller.ErrGraceExceeded) {
		polled = nil // the caller did not wait for the stages
	}
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := errors.Join(polled, d.stages.Close(removing)) // Poll has closed them, unless it never began
	d.client.CloseIdleConnections()
	return err
}
