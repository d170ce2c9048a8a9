// Package otlp exports a delegate's own log over OTLP/HTTP (SPEC L1,
// ENABLE_REMOTE_LOGGING).
//
//	remote, err := otlp.Open(ctx, otlp.Config{Service: "delegate"})
//	if err != nil {
//		return err
//	}
//	log, closer, err := logger.New(logger.Config{Mask: mask, Export: remote})
//	...
//	err = remote.Close(ctx) // after the last event
//
// The events get here masked. They wait in a bounded queue for a goroutine that
// sends them in batches: a collector that is slow or away delays nobody, and
// what it costs is counted.
//
// Start reading at otlp.go for the queue, record.go for what becomes of an event.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Config configures an [Exporter]. Its zero value is usable: where the log goes is
// said by OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT, and the
// other OTEL_EXPORTER_OTLP_ variables (HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE,
// CLIENT_CERTIFICATE, CLIENT_KEY) hold likewise.
type Config struct {
	// Endpoint is the collector's URL with its path, such as
	// "https://collector:4318/v1/logs". Empty means what the environment says, or
	// https://localhost:4318/v1/logs.
	Endpoint string
	// Service is service.name, unless OTEL_SERVICE_NAME or
	// OTEL_RESOURCE_ATTRIBUTES says otherwise. Empty means "dlite-delegate".
	Service string
	// Attributes describe the delegate, and are sent with every batch.
	Attributes map[string]string

	// MaxQueue is how many events wait at most. Those that come when it is full
	// are dropped. 0 means 4,096.
	MaxQueue int
	// Batch is how many events are sent at once. 0 means 512.
	Batch int
	// Interval is how long events wait for company. 0 means 1 s.
	Interval time.Duration
	// RetryFor is how long a batch is tried again, with back-off, while the
	// collector is away or overloaded. Then it is dropped. 0 means 1 min.
	RetryFor time.Duration
}

func (c *Config) setDefaults() {
	if c.Service == "" {
		c.Service = "dlite-delegate"
	}
	if c.MaxQueue <= 0 {
		c.MaxQueue = 4096
	}
	if c.Batch <= 0 {
		c.Batch = 512
	}
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	if c.RetryFor <= 0 {
		c.RetryFor = time.Minute
	}
}

// Exporter is an io.Writer of log events, as JSON, one a call. It is safe for
// concurrent use. It has to be closed.
type Exporter struct {
	cfg      Config
	exporter sdklog.Exporter
	provider *sdklog.LoggerProvider
	log      otellog.Logger

	queue   chan sdklog.Record
	dropped atomic.Int64

	mu      sync.Mutex // guards closed
	closed  bool
	closing chan struct{}      // closed when Close begins
	done    chan struct{}      // closed when the goroutine has ended
	stop    context.CancelFunc // ends what is being sent

	// The goroutine's; read by Close after done.
	told    int64 // how many of the dropped events the collector knows of
	lastErr error
}

// Open makes an exporter. It does not wait for the collector. It fails when the
// configuration or the environment makes no sense.
func Open(ctx context.Context, cfg Config) (*Exporter, error) {
	cfg.setDefaults()
	options := []otlploghttp.Option{otlploghttp.WithRetry(otlploghttp.RetryConfig{
		Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 10 * time.Second, MaxElapsedTime: cfg.RetryFor,
	})}
	if cfg.Endpoint != "" {
		options = append(options, otlploghttp.WithEndpointURL(cfg.Endpoint))
	}
	exporter, err := otlploghttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("exporting the log over OTLP: %w", err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", cfg.Service)}
	for k, v := range cfg.Attributes {
		attributes = append(attributes, attribute.String(k, v))
	}
	// The environment comes last, and wins.
	res, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing the delegate for OTLP: %w", errors.Join(err, exporter.Shutdown(ctx)))
	}
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	e := &Exporter{
		cfg: cfg, exporter: exporter, queue: make(chan sdklog.Record, cfg.MaxQueue),
		closing: make(chan struct{}), done: make(chan struct{}), stop: stop,
	}
	e.provider = sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(processor{e}))
	e.log = e.provider.Logger("github.com/delegate-io/dlite")
	go e.run(sending)
	return e, nil
}

// Write queues an event, or drops it when the queue is full. It never waits, and
// never fails: the rest of the log is not to suffer.
func (e *Exporter) Write(event []byte) (int, error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		e.dropped.Add(1)
	} else {
		e.log.Emit(context.Background(), record(event))
	}
	return len(event), nil
}

// Dropped is how many events did not reach the collector.
func (e *Exporter) Dropped() int64 { return e.dropped.Load() }

// processor is what the SDK hands records to.
type processor struct{ e *Exporter }

func (p processor) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

func (p processor) OnEmit(_ context.Context, r *sdklog.Record) error {
	select {
	case p.e.queue <- r.Clone():
	default:
		p.e.dropped.Add(1)
	}
	return nil
}

func (p processor) Shutdown(context.Context) error   { return nil }
func (p processor) ForceFlush(context.Context) error { return nil }

// run sends batches until Close has begun and the queue is empty, or ctx ends.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(e.cfg.Interval)
	defer tick.Stop()
	batch := make([]sdklog.Record, 0, e.cfg.Batch)
	flush := func() {
		if len(batch) > 0 {
			e.send(ctx, batch)
			batch = batch[:0]
		}
	}
	for {
		select {
		case r := <-e.queue:
			if batch = append(batch, r); len(batch) == e.cfg.Batch {
				flush()
			}
		case <-tick.C:
			flush()
		case <-e.closing:
			for {
				select {
				case r := <-e.queue:
					if batch = append(batch, r); len(batch) == e.cfg.Batch {
						flush()
					}
					continue
				default:
				}
				flush()
				return
			}
		}
	}
}

// send exports a batch, and after it says how many events are missing.
func (e *Exporter) send(ctx context.Context, batch []sdklog.Record) {
	if err := e.exporter.Export(ctx, batch); err != nil {
		e.lastErr = err
		e.dropped.Add(int64(len(batch)))
		return
	}
	if n := e.dropped.Load(); n > e.told {
		// Not through the queue, which may be full.
		r := batch[len(batch)-1].Clone()
		missing(&r, n-e.told)
		if e.exporter.Export(ctx, []sdklog.Record{r}) == nil {
			e.told = n
		}
	}
}

// Close sends what is queued, as far as ctx allows, and ends the exporter. Its
// error says how many events were dropped since it was opened, and why the last
// batch was.
func (e *Exporter) Close(ctx context.Context) error {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	e.mu.Unlock()
	if !already {
		close(e.closing)
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		e.stop()
		<-e.done
	}
	if already {
		return nil
	}
	e.stop()
	err := errors.Join(e.provider.Shutdown(context.WithoutCancel(ctx)), e.exporter.Shutdown(context.WithoutCancel(ctx)))
	if n := e.Dropped(); n > 0 {
		reason := e.lastErr
		if reason == nil {
			reason = errors.New("the queue was full")
		}
		err = errors.Join(err, fmt.Errorf("%d log events were not exported: %w", n, reason))
	}
	return err
}
