package otlp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// severities of zerolog's levels.
var severities = map[string]otellog.Severity{
	"trace": otellog.SeverityTrace, "debug": otellog.SeverityDebug, "info": otellog.SeverityInfo,
	"warn": otellog.SeverityWarn, "error": otellog.SeverityError, "fatal": otellog.SeverityFatal, "panic": otellog.SeverityFatal4,
}

// record makes a record of an event: time, level and message have their places,
// and all other fields are attributes. Masking may leave an event that is no JSON
// any more; it is sent as the text that it is.
func record(event []byte) (r otellog.Record) {
	r.SetObservedTimestamp(time.Now())
	d := json.NewDecoder(bytes.NewReader(event))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		r.SetTimestamp(time.Now())
		r.SetBody(attribute.StringValue(string(bytes.TrimSpace(event))))
		return r
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := fields[name]
		text, isText := v.(string)
		switch {
		case name == zerolog.LevelFieldName && isText:
			r.SetSeverity(severities[text])
			r.SetSeverityText(text)
		case name == zerolog.MessageFieldName && isText:
			r.SetBody(attribute.StringValue(text))
		case name == zerolog.TimestampFieldName && isText && setTime(&r, text):
		default:
			r.AddAttributes(attribute.KeyValue{Key: attribute.Key(name), Value: value(v)})
		}
	}
	return r
}

func setTime(r *otellog.Record, text string) bool {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		r.SetTimestamp(at)
	}
	return err == nil
}

// value keeps what a field is; lists and objects become JSON text.
func value(v any) attribute.Value {
	switch v := v.(type) {
	case string:
		return attribute.StringValue(v)
	case bool:
		return attribute.BoolValue(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return attribute.Int64Value(n)
		}
		if f, err := v.Float64(); err == nil {
			return attribute.Float64Value(f)
		}
		return attribute.StringValue(v.String())
	default:
		text, _ := json.Marshal(v) // it was JSON
		return attribute.StringValue(string(text))
	}
}

// missing turns a record into one that says how many are missing.
func missing(r *sdklog.Record, n int64) {
	r.SetTimestamp(time.Now())
	r.SetObservedTimestamp(time.Now())
	r.SetSeverity(otellog.SeverityWarn)
	r.SetSeverityText("warn")
	r.SetBody(attribute.StringValue(fmt.Sprintf("%d log events were not exported", n)))
	r.SetAttributes(attribute.Int64("dropped", n))
}
