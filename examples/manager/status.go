package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/service"
)

// reporter tells the service manager and "manager status" how the manager is.
type reporter struct {
	stopping <-chan struct{}
	host     *service.Host
	served   atomic.Pointer[service.Manager] // nil while the manager starts
	store    string
}

// openReporter reports from now on, and pauses if earlier starts of the service have failed. The caller closes r.host
// at the end.
func openReporter(ctx context.Context, c *serverCommand, log zerolog.Logger) (*reporter, error) {
	store, _, _ := strings.Cut(c.Store, ":") // the address of a Redis may contain a password
	r := &reporter{stopping: ctx.Done(), store: store}
	var err error
	r.host, err = service.Attach(ctx, service.Config{
		Program: "manager", Socket: cmp.Or(c.StatusSocket, service.DefaultSocket()), Status: r.status, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("STATUS_SOCKET: %w", err)
	}
	_ = r.host.Pause(ctx) // an interrupt ends the start too
	return r, nil
}

// serving tells that the manager takes calls.
func (r *reporter) serving(url string, pipelines bool) {
	r.served.Store(&service.Manager{URL: url, Store: r.store, Pipelines: pipelines})
}

func (r *reporter) status() service.Status {
	s := service.Status{State: service.Starting, Manager: r.served.Load()}
	if s.Manager != nil {
		s.State = service.Running
	}
	select {
	case <-r.stopping:
		s.State = service.Draining
	default:
	}
	return s
}
