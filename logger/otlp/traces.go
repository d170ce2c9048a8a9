package otlp

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Traces returns the provider of spans that the environment asks for. It exports to
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT by OTLP over HTTP,
// and reads the other OTEL_ variables as their specification defines them. Without an
// endpoint, with OTEL_SDK_DISABLED=true or with OTEL_TRACES_EXPORTER=none it records
// nothing. service is the name of the service unless OTEL_SERVICE_NAME is set. Spans
// that cannot be exported are logged and dropped; an export never delays a task.
//
// Traces returns an error for another protocol than http/protobuf. closer exports the
// remaining spans until its context ends; it is never nil.
func Traces(ctx context.Context, service string, log zerolog.Logger) (tp trace.TracerProvider, closer func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	if !exportsTraces() {
		return noop.NewTracerProvider(), nothing, nil
	}
	if p := variable(tracesSignal, "PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, nothing, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: it must be http/protobuf")
	}
	if e := firstSet("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return nil, nothing, errors.New("OTEL_TRACES_EXPORTER: it must be otlp or none")
	}
	sender, err := newSender(tracesSignal, "", traceRetryFor)
	if err != nil {
		return nil, nothing, err
	}
	exporter, err := otlptrace.New(ctx, traceClient{sender})
	if err != nil {
		return nil, nothing, err
	}
	// The attributes of the environment win.
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithHost(),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nothing, errors.Join(errors.New("OTEL_RESOURCE_ATTRIBUTES: it must be name=value,name=value"), exporter.Shutdown(ctx))
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(loggingExporter{exporter, log}))
	return p, p.Shutdown, nil
}

// traceRetryFor bounds the attempts to deliver one batch of spans.
const traceRetryFor = time.Minute

// exportsTraces reports whether the environment asks for an export.
func exportsTraces() bool {
	return firstSet("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != "" &&
		!strings.EqualFold(firstSet("OTEL_SDK_DISABLED"), "true") && firstSet("OTEL_TRACES_EXPORTER") != "none"
}

// traceClient is an [otlptrace.Client].
type traceClient struct{ sender *sender }

func (traceClient) Start(context.Context) error { return nil }

func (c traceClient) Stop(context.Context) error {
	c.sender.close()
	return nil
}

// UploadTraces sends spans. A TracesData is encoded as an ExportTraceServiceRequest is.
func (c traceClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	return c.sender.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
}

// loggingExporter logs a failed export. The SDK would write it to the standard error.
type loggingExporter struct {
	sdktrace.SpanExporter
	log zerolog.Logger
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.Warn().Err(err).Int("spans", len(spans)).Msg("could not export traces")
	}
	return nil
}
