package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/otlp"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/poller/metrics"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/router/tracing"
	"github.com/delegate-io/dlite/task/capacity"
)

// observed serves metrics and health, and exports traces (rule L3).
type observed struct {
	registry *prometheus.Registry
	tracer   trace.TracerProvider
	server   *telemetry.Server
	closers  []func(context.Context) error

	pollers atomic.Pointer[[]*poller.Poller] // nil while the delegate starts
}

// observeDelegate starts serving before the delegate starts. Removing resources of an earlier process may take long,
// and the supervisor must not take the delegate for dead meanwhile.
func observeDelegate(ctx context.Context, cfg config, log zerolog.Logger) (*observed, error) {
	o := &observed{registry: prometheus.NewRegistry()}
	tracer, closeTraces, err := otlp.Traces(ctx, "dlite-delegate", log)
	if err != nil {
		return nil, err
	}
	o.tracer, o.closers = tracer, append(o.closers, closeTraces)
	o.registry.MustRegister(telemetry.Host(cfg.WorkDir),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	live := telemetry.Checks{{Name: "loops", Run: o.check(metrics.Live, nil)}}
	ready := telemetry.Checks{{Name: "manager", Run: o.check(metrics.Ready, errors.New("the delegate is starting"))}}
	o.server, err = telemetry.Listen(ctx, cfg.HTTPBind, "127.0.0.1:3000", telemetry.Handler(o.registry, live, ready), log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("HTTP_BIND: %w", err), o.close())
	}
	o.closers = append(o.closers, o.server.Close)
	return o, nil
}

// check runs the checks of the pollers. Until they exist, it returns before.
func (o *observed) check(checks func(*poller.Poller) telemetry.Checks, before error) func(context.Context) error {
	return func(ctx context.Context) error {
		all := o.pollers.Load()
		if all == nil {
			return before
		}
		for _, p := range *all {
			for _, c := range checks(p) {
				if err := c.Run(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// middleware returns the middleware that must be outside of all others that log or answer.
func (o *observed) middleware(routes router.RouteMap) []router.Middleware {
	tasks := metrics.NewTasks(slices.Collect(maps.Keys(routes))...)
	o.registry.MustRegister(tasks)
	return []router.Middleware{router.Metrics(tasks.Observe), tracing.Middleware(o.tracer)}
}

// watch adds the metrics of the delegate's parts. Those of two pollers have the label server. The slots, which they
// share, are with the first one.
func (o *observed) watch(pollers []*poller.Poller, stages *transaction.Group, drivers []driver.Driver, logs *logger.Deliverer) {
	if len(pollers) == 1 {
		o.registry.MustRegister(metrics.Poller(pollers[0], stages.Slots()))
	} else {
		for i, server := range []string{"manager", "drone"} {
			slots := []*capacity.Slots{stages.Slots(), nil}[i]
			prometheus.WrapRegistererWith(prometheus.Labels{"server": server}, o.registry).MustRegister(metrics.Poller(pollers[i], slots))
		}
	}
	o.registry.MustRegister(
		metrics.Stages(func() metrics.StageStats { return metrics.StageStats(stages.Stats()) }))
	waiting := func(name, help string, value func(logger.DelivererStats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(logs.Stats()) })
	}
	o.registry.MustRegister(
		waiting("dlite_logs_waiting", "Logs that wait for their log service.", func(s logger.DelivererStats) float64 { return float64(s.Waiting) }),
		waiting("dlite_logs_waiting_bytes", "Bytes on the disk of these logs.", func(s logger.DelivererStats) float64 { return float64(s.Bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "dlite_logs_dropped_total", Help: "Logs that were given up."},
			func() float64 { return float64(logs.Stats().Dropped) }))
	for _, d := range drivers {
		if m, ok := d.(*machines); ok {
			o.registry.MustRegister(vm.Metrics(m.pools...))
		}
	}
	o.pollers.Store(&pollers)
}

// close exports the remaining data, and then ends the server.
func (o *observed) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, f := range o.closers {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}
