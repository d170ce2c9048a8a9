// Package otlp exports by OTLP over HTTP: a delegate's own log, and the traces of a
// delegate or a manager (rules L1 and L3).
//
//	remote, err := otlp.Open(ctx, otlp.Config{Service: "delegate"})
//	if err != nil {
//		return err
//	}
//	log, closer, err := logger.New(logger.Config{Mask: mask, Export: remote})
//	...
//	err = remote.Close(ctx) // after the last event
//
// Package logger masks the events before it writes them here. They wait in a bounded
// queue for a goroutine that sends them in batches. A collector that is slow or away
// delays nothing; the exporter counts the events that it drops.
//
// Start reading at otlp.go for the queue; record.go converts events, sender.go speaks
// the protocol, traces.go exports spans.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// Config configures an [Exporter]. With its zero value the variables
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT name the collector. The
// other OTEL_EXPORTER_OTLP_ variables (HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE,
// CLIENT_CERTIFICATE, CLIENT_KEY) apply too.
type Config struct {
	// Endpoint is the collector's URL with its path, such as
	// "https://collector:4318/v1/logs". Empty means the environment's, or
	// https://localhost:4318/v1/logs.
	Endpoint string
	// Service is the attribute service.name, unless OTEL_SERVICE_NAME or
	// OTEL_RESOURCE_ATTRIBUTES sets it. Empty means "dlite-delegate".
	Service string
	// Attributes describe the delegate, and are sent with every batch.
	Attributes map[string]string

	// MaxQueue bounds the events that wait. While the queue is full, new events are
	// dropped. 0 means 4,096.
	MaxQueue int
	// Batch is the number of events in one request at most. 0 means 512.
	Batch int
	// Interval is how long an incomplete batch waits. 0 means 1 s.
	Interval time.Duration
	// RetryFor is how long the exporter tries to deliver a batch, with back-off, while
	// the collector is away or overloaded. Then it drops the batch. 0 means 1 min.
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

// Exporter is an io.Writer of log events, one JSON object in each call. It is safe for
// concurrent use. Its owner must close it.
type Exporter struct {
	cfg      Config
	sender   *sender
	resource *resourcepb.Resource

	queue   chan *logspb.LogRecord
	dropped atomic.Int64

	mu      sync.Mutex // guards closed
	closed  bool
	closing chan struct{}      // closed when Close begins
	done    chan struct{}      // closed when the goroutine has ended
	stop    context.CancelFunc // ends the request under way

	// The fields below belong to the goroutine; Close reads them after done.
	reported int64 // the dropped events that the collector knows of
	lastErr  error
}

// Open returns an exporter without waiting for the collector. It returns an error if
// the configuration or the environment is invalid.
func Open(ctx context.Context, cfg Config) (*Exporter, error) {
	cfg.setDefaults()
	sender, err := newSender(logsSignal, cfg.Endpoint, cfg.RetryFor)
	if err != nil {
		return nil, fmt.Errorf("exporting the log over OTLP: %w", err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", cfg.Service)}
	for k, v := range cfg.Attributes {
		attributes = append(attributes, attribute.String(k, v))
	}
	// The attributes of the environment win.
	res, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: describing the delegate for OTLP: %w", err)
	}
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	e := &Exporter{
		cfg: cfg, sender: sender, resource: &resourcepb.Resource{}, queue: make(chan *logspb.LogRecord, cfg.MaxQueue),
		closing: make(chan struct{}), done: make(chan struct{}), stop: stop,
	}
	for _, a := range res.Attributes() {
		e.resource.Attributes = append(e.resource.Attributes, &commonpb.KeyValue{Key: string(a.Key), Value: text(a.Value.String())})
	}
	go e.run(sending)
	return e, nil
}

// Write queues an event, or drops it if the queue is full. It never waits and never
// returns an error, so that the other outputs of the log do not suffer.
func (e *Exporter) Write(event []byte) (int, error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		e.dropped.Add(1)
		return len(event), nil
	}
	select {
	case e.queue <- newRecord(event):
	default:
		e.dropped.Add(1)
	}
	return len(event), nil
}

// Dropped returns the number of events that did not reach the collector.
func (e *Exporter) Dropped() int64 { return e.dropped.Load() }

// run sends batches until Close has begun and the queue is empty, or ctx ends.
func (e *Exporter) run(ctx context.Context) {
	defer close(e.done)
	tick := time.NewTicker(e.cfg.Interval)
	defer tick.Stop()
	batch := make([]*logspb.LogRecord, 0, e.cfg.Batch)
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

// send exports a batch, and after a success the number of events that are missing.
func (e *Exporter) send(ctx context.Context, batch []*logspb.LogRecord) {
	if err := e.export(ctx, batch...); err != nil {
		e.lastErr = err
		e.dropped.Add(int64(len(batch)))
		return
	}
	if n := e.dropped.Load(); n > e.reported {
		// Past the queue, which may be full.
		if e.export(ctx, droppedRecord(n-e.reported)) == nil {
			e.reported = n
		}
	}
}

// export sends records. A LogsData is encoded as an ExportLogsServiceRequest is.
func (e *Exporter) export(ctx context.Context, records ...*logspb.LogRecord) error {
	return e.sender.send(ctx, &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: e.resource,
		ScopeLogs: []*logspb.ScopeLogs{{
			Scope: &commonpb.InstrumentationScope{Name: "github.com/delegate-io/dlite"}, LogRecords: records,
		}},
	}}})
}

// Close sends the queued events until ctx ends, and ends the exporter. Its error says
// how many events were dropped since Open, and why the last batch was.
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
	e.sender.close()
	if n := e.Dropped(); n > 0 {
		reason := e.lastErr
		if reason == nil {
			reason = errors.New("the queue was full")
		}
		return fmt.Errorf("%d log events were not exported: %w", n, reason)
	}
	return nil
}
