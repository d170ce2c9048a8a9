package otlp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Traces makes the provider of spans that the environment asks for: they go to
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT by OTLP over
// HTTP, and the other OTEL_ variables of its specification mean what they mean
// there. Without an endpoint, with OTEL_SDK_DISABLED=true or
// OTEL_TRACES_EXPORTER=none nothing is recorded. service is the service's name
// where OTEL_SERVICE_NAME does not say. Spans that cannot be exported are logged
// and dropped; they never hold up what they tell of.
//
// It fails on another protocol than http/protobuf. close exports what is left,
// until its context ends; it is never nil.
func Traces(ctx context.Context, service string, log zerolog.Logger) (tp trace.TracerProvider, closer func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	if !exports() {
		return noop.NewTracerProvider(), nothing, nil
	}
	if p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, nothing, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: it must be http/protobuf")
	}
	if e := first("OTEL_TRACES_EXPORTER"); e != "" && e != "otlp" {
		return nil, nothing, errors.New("OTEL_TRACES_EXPORTER: it must be otlp or none")
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nothing, fmt.Errorf("setting up the export of traces: %w", err)
	}
	// What the environment says about the resource goes before.
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithHost(),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nothing, errors.Join(errors.New("OTEL_RESOURCE_ATTRIBUTES: it must be name=value,name=value"), exporter.Shutdown(ctx))
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(quiet{exporter, log}))
	return p, p.Shutdown, nil
}

// exports says whether the environment asks for an export.
func exports() bool {
	return first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") != "" &&
		!strings.EqualFold(first("OTEL_SDK_DISABLED"), "true") && first("OTEL_TRACES_EXPORTER") != "none"
}

// first is the first of some variables that is set.
func first(names ...string) string {
	for _, n := range names {
		if v := strings.TrimSpace(os.Getenv(n)); v != "" {
			return v
		}
	}
	return ""
}

// quiet logs what goes wrong with an export: the library would write it to the
// standard error by itself.
type quiet struct {
	sdktrace.SpanExporter
	log zerolog.Logger
}

// ExportSpans implements [sdktrace.SpanExporter].
func (q quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := q.SpanExporter.ExportSpans(ctx, spans); err != nil {
		q.log.Warn().Err(err).Int("spans", len(spans)).Msg("could not export traces")
	}
	return nil
}
