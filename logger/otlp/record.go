package otlp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
)

// severities maps zerolog's levels.
var severities = map[string]logspb.SeverityNumber{
	"trace": logspb.SeverityNumber_SEVERITY_NUMBER_TRACE, "debug": logspb.SeverityNumber_SEVERITY_NUMBER_DEBUG,
	"info": logspb.SeverityNumber_SEVERITY_NUMBER_INFO, "warn": logspb.SeverityNumber_SEVERITY_NUMBER_WARN,
	"error": logspb.SeverityNumber_SEVERITY_NUMBER_ERROR, "fatal": logspb.SeverityNumber_SEVERITY_NUMBER_FATAL,
	"panic": logspb.SeverityNumber_SEVERITY_NUMBER_FATAL4,
}

// newRecord returns the record of an event: time, level and message have separate fields,
// and every other field is an attribute. An event that masking made invalid JSON
// becomes a record with its text.
func newRecord(event []byte) *logspb.LogRecord {
	now := uint64(time.Now().UnixNano())
	r := &logspb.LogRecord{ObservedTimeUnixNano: now}
	d := json.NewDecoder(bytes.NewReader(event))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		r.TimeUnixNano = now
		r.Body = text(string(bytes.TrimSpace(event)))
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v := fields[name]
		t, isText := v.(string)
		switch {
		case name == zerolog.LevelFieldName && isText:
			r.SeverityNumber, r.SeverityText = severities[t], t
		case name == zerolog.MessageFieldName && isText:
			r.Body = text(t)
		case name == zerolog.TimestampFieldName && isText && setTime(r, t):
		default:
			r.Attributes = append(r.Attributes, &commonpb.KeyValue{Key: name, Value: value(v)})
		}
	}
	return r
}

func setTime(r *logspb.LogRecord, text string) bool {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		r.TimeUnixNano = uint64(at.UnixNano())
	}
	return err == nil
}

func text(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func integer(n int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
}

// value keeps the type of a field. Lists and objects become JSON text.
func value(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case string:
		return text(v)
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return integer(n)
		}
		if f, err := v.Float64(); err == nil {
			return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
		}
		return text(v.String())
	default:
		b, _ := json.Marshal(v) // it was JSON
		return text(string(b))
	}
}

// droppedRecord returns the record with the number of missing events.
func droppedRecord(n int64) *logspb.LogRecord {
	now := uint64(time.Now().UnixNano())
	return &logspb.LogRecord{
		TimeUnixNano: now, ObservedTimeUnixNano: now,
		SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_WARN, SeverityText: "warn",
		Body:       text(fmt.Sprintf("%d log events were not exported", n)),
		Attributes: []*commonpb.KeyValue{{Key: "dropped", Value: integer(n)}},
	}
}
