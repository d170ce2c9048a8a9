package logger

import (
	"context"

	"github.com/rs/zerolog"
)

// The fields by which log events are labelled (SPEC L1).
const (
	FieldAccount     = "account"
	FieldDelegate    = "delegate"
	FieldTask        = "task"
	FieldTaskType    = "task_type"
	FieldTransaction = "transaction"
	FieldStage       = "stage"
	FieldStep        = "step"
)

// Labels say what a log event is about. Empty ones are left out.
type Labels struct {
	Account     string
	Delegate    string
	Task        string
	TaskType    string
	Transaction string
	Stage       string
	Step        string
}

// Apply returns a logger that puts the labels on every event, after those of
// log.
func (l Labels) Apply(log zerolog.Logger) zerolog.Logger {
	c := log.With()
	for _, f := range [...]struct{ name, value string }{
		{FieldAccount, l.Account},
		{FieldDelegate, l.Delegate},
		{FieldTask, l.Task},
		{FieldTaskType, l.TaskType},
		{FieldTransaction, l.Transaction},
		{FieldStage, l.Stage},
		{FieldStep, l.Step},
	} {
		if f.value != "" {
			c = c.Str(f.name, f.value)
		}
	}
	return c.Logger()
}

// NewContext returns a context that carries log. It uses zerolog's own key:
// zerolog.Ctx finds the logger as well.
func NewContext(ctx context.Context, log zerolog.Logger) context.Context {
	return log.WithContext(ctx)
}

// FromContext is the logger that ctx carries. Without one it is
// zerolog.DefaultContextLogger where a program has set that, and otherwise a
// disabled logger; never nil.
func FromContext(ctx context.Context) *zerolog.Logger {
	return zerolog.Ctx(ctx)
}

// WithLabels returns a context whose logger puts the labels on every event, on
// top of those that the logger of ctx has.
func WithLabels(ctx context.Context, l Labels) context.Context {
	return NewContext(ctx, l.Apply(*FromContext(ctx)))
}
