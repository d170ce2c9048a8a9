package logger

import (
	"context"
	"log/slog"
	"slices"

	"github.com/rs/zerolog"
)

// Slog returns a [slog.Logger] that writes to log. Levels map to the next lower
// zerolog level, groups become nested objects, and a logger in the context of a
// call ([FromContext]), such as that of a handler, is preferred to log: its labels
// and its mask apply.
func Slog(log zerolog.Logger) *slog.Logger { return slog.New(slogHandler{log: log}) }

// slogHandler writes records to a zerolog logger.
type slogHandler struct {
	log    zerolog.Logger
	groups []slogGroup // from the outside in; the first one has no name
}

// slogGroup is an open group with the attributes that were added in it.
type slogGroup struct {
	name  string
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (h slogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	level := slogLevel(l)
	return level >= h.target(ctx).GetLevel() && level >= zerolog.GlobalLevel()
}

// Handle implements [slog.Handler].
func (h slogHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := make([]slog.Attr, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	for _, g := range slices.Backward(h.groups) {
		attrs = append(slices.Clone(g.attrs), attrs...)
		if g.name != "" {
			attrs = []slog.Attr{{Key: g.name, Value: slog.GroupValue(attrs...)}}
		}
	}
	event := h.target(ctx).WithLevel(slogLevel(r.Level))
	addAttrs(event, attrs)
	event.Msg(r.Message)
	return nil
}

// WithAttrs implements [slog.Handler].
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	h.groups = slices.Clone(h.groups)
	if len(h.groups) == 0 {
		h.groups = []slogGroup{{}}
	}
	last := &h.groups[len(h.groups)-1]
	last.attrs = slices.Concat(last.attrs, attrs)
	return h
}

// WithGroup implements [slog.Handler].
func (h slogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	h.groups = append(slices.Clone(h.groups), slogGroup{name: name})
	return h
}

// target returns the logger of ctx, or that of the handler.
func (h slogHandler) target(ctx context.Context) *zerolog.Logger {
	if log := FromContext(ctx); log.GetLevel() != zerolog.Disabled {
		return log
	}
	return &h.log
}

func slogLevel(l slog.Level) zerolog.Level {
	switch {
	case l < slog.LevelDebug:
		return zerolog.TraceLevel
	case l < slog.LevelInfo:
		return zerolog.DebugLevel
	case l < slog.LevelWarn:
		return zerolog.InfoLevel
	case l < slog.LevelError:
		return zerolog.WarnLevel
	default:
		return zerolog.ErrorLevel
	}
}

// addAttrs adds attributes to an event. Groups become objects; empty ones and
// empty attributes are left out.
func addAttrs(e *zerolog.Event, attrs []slog.Attr) {
	for _, a := range attrs {
		v := a.Value.Resolve()
		switch {
		case a.Equal(slog.Attr{}):
		case v.Kind() == slog.KindGroup && a.Key == "":
			addAttrs(e, v.Group())
		case v.Kind() == slog.KindGroup:
			if len(v.Group()) > 0 {
				e.Object(a.Key, slogObject(v.Group()))
			}
		case v.Kind() == slog.KindString:
			e.Str(a.Key, v.String())
		case v.Kind() == slog.KindInt64:
			e.Int64(a.Key, v.Int64())
		case v.Kind() == slog.KindUint64:
			e.Uint64(a.Key, v.Uint64())
		case v.Kind() == slog.KindFloat64:
			e.Float64(a.Key, v.Float64())
		case v.Kind() == slog.KindBool:
			e.Bool(a.Key, v.Bool())
		case v.Kind() == slog.KindDuration:
			e.Stringer(a.Key, v.Duration())
		case v.Kind() == slog.KindTime:
			e.Time(a.Key, v.Time())
		default:
			if err, ok := v.Any().(error); ok {
				e.AnErr(a.Key, err)
			} else {
				e.Interface(a.Key, v.Any())
			}
		}
	}
}

// slogObject is a group as a JSON object.
type slogObject []slog.Attr

// MarshalZerologObject implements [zerolog.LogObjectMarshaler].
func (o slogObject) MarshalZerologObject(e *zerolog.Event) { addAttrs(e, o) }
