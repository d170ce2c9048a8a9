package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
)

// reporter tells the service manager and "delegate status" how the delegate is.
type reporter struct {
	cfg    config
	host   *service.Host
	alive  func(context.Context) error
	phase  atomic.Pointer[string] // what the start does
	worker atomic.Pointer[workers]
	// updates is nil while the delegate starts.
	updates atomic.Pointer[updates]
}

// workers are the parts of a delegate that has started.
type workers struct {
	pollers []*poller.Poller
	stages  *transaction.Group
	logs    *logger.Deliverer
}

// openReporter reports from now on. The caller closes r.host at the end.
func openReporter(ctx context.Context, cfg config, seen *observed, log zerolog.Logger) (*reporter, error) {
	r := &reporter{cfg: cfg, alive: seen.check(metrics.Live, nil)}
	var err error
	r.host, err = service.Attach(ctx, service.Config{
		Program: "delegate", Socket: cfg.StatusSocket, Status: r.status, Alive: r.alive, Log: log,
		Linger:   seconds(cfg.IdleWait+cfg.CleanupGrace) + 2*closeTimeout,
		Detached: cfg.trial(), Upgrade: r.stageUpgrade,
	})
	if err != nil {
		return nil, fmt.Errorf("STATUS_SOCKET: %w", err)
	}
	return r, nil
}

// stageUpgrade stages an upgrade that root has ordered at the socket.
func (r *reporter) stageUpgrade(ctx context.Context, want service.Upgrade) (service.Upgraded, error) {
	u := r.updates.Load()
	if u == nil {
		return service.Upgraded{}, errors.New("the delegate is starting: try again")
	}
	return u.stage(ctx, want)
}

// starting sets the current part of the start.
func (r *reporter) starting(text string) { r.phase.Store(&text) }

// prepare runs the parts of the start before the registration: the pause after failed starts, and the init script.
func (r *reporter) prepare(ctx context.Context, log zerolog.Logger, signals ...os.Signal) error {
	if len(signals) > 0 { // otherwise NotifyContext would take all of them
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, signals...)
		defer stop()
	}
	if r.host.Pause(ctx) != nil {
		return errInterrupted
	}
	r.starting("the init script runs")
	if err := runInitScript(ctx, r.cfg, log); err != nil {
		return err
	}
	r.starting("its parts start")
	return nil
}

func (r *reporter) status() service.Status {
	w := r.worker.Load()
	if w == nil {
		s := service.Status{State: service.Starting, Delegate: &service.Delegate{Name: r.cfg.Name}}
		if text := r.phase.Load(); text != nil {
			s.Message = *text
		}
		return s
	}
	slots, stats := w.stages.Slots(), w.stages.Stats()
	d := &service.Delegate{
		Name: r.cfg.Name, SlotsUsed: slots.Used(), SlotsMax: slots.Max(), Stages: stats.Open, Tasks: map[string]int{},
		LogsWaiting: w.logs.Stats().Waiting,
	}
	s := service.Status{State: service.Running, Delegate: d}
	for i, p := range w.pollers {
		h := p.Health()
		server := service.Server{Kind: "manager", URL: withoutUser(r.cfg.URL), Heartbeat: h.Contact}
		if i > 0 || !r.cfg.managed() {
			server.Kind, server.URL = "drone", withoutUser(r.cfg.droneURL())
		}
		d.Servers = append(d.Servers, server)
		for kind, n := range p.Stats().Running {
			d.Tasks[kind] += n
		}
		switch {
		case h.Draining:
			s.State = service.Draining
		case s.State == service.Draining:
		case h.Contact.IsZero() || !h.Polling:
			s.State, s.Message = service.Starting, server.Kind+" "+server.URL+" has not accepted the registration yet"
		case h.Lost:
			s.Message = server.Kind + " " + server.URL + " does not know this delegate: it registers again"
		case time.Since(h.Contact) > lateBeats*h.HeartbeatEvery:
			s.Message = fmt.Sprintf("%s %s has accepted no heartbeat for %s", server.Kind, server.URL, time.Since(h.Contact).Round(time.Second))
		}
	}
	return s
}

// lateBeats is the number of heartbeats after which the status warns.
const lateBeats = 3

// withoutUser returns an address without a user and a password.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}
