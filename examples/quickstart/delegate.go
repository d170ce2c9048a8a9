package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/capacity"
)

// delegate is the delegate's side. Of the manager's side it knows only the address.
type delegate struct {
	client *client.HTTP
	driver *local.Driver
	stages *transaction.Stages
	poller *poller.Poller
	polled chan error
	dir    string
}

func startDelegate(ctx context.Context, url, secret string, log zerolog.Logger) (_ *delegate, err error) {
	d := &delegate{polled: make(chan error, 1)}
	if d.dir, err = os.MkdirTemp("", "dlite-quickstart-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.dir))
		}
	}()
	if d.client, err = client.New(url, account, secret, client.WithLogger(log)); err != nil {
		return nil, err
	}
	if d.driver, err = local.New(local.Config{Host: host.Config{WorkDir: filepath.Join(d.dir, "work"), Hidden: []string{d.dir}, Log: log}}); err != nil {
		return nil, err
	}
	d.stages = transaction.New(d.driver, transaction.WithSlots(capacity.NewSlots(1)), transaction.WithLogger(log),
		transaction.WithLedger(filepath.Join(d.dir, "ledger")))
	routes := router.New(d.stages.Routes(), router.Standard(log))
	d.poller = poller.New(d.client, routes, poller.WithName("quickstart"), poller.WithStages(d.stages), poller.WithLogger(log))
	info, err := d.poller.Register(ctx)
	if err != nil {
		return nil, err
	}
	go func() { d.polled <- d.poller.Poll(context.WithoutCancel(ctx), 4, info.ID, time.Second) }()
	return d, nil
}

// drain ends the delegate after its stages, or at once on a signal, and removes its resources.
func (d *delegate) drain(signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-signals:
			stop()
		case <-waiting.Done():
		}
	}()
	_ = d.poller.Shutdown(waiting) // Poll returns the relevant error
	polled := <-d.polled
	if errors.Is(polled, poller.ErrShutdown) {
		polled = nil // the delegate was idle, and ended before the first poll
	}
	err := errors.Join(polled, d.stages.Close(ctx)) // Poll has closed them, unless it never began
	d.client.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(d.dir))
}
