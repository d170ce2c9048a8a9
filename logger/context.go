package logger

import (
	"context"

	"github.com/rs/zerolog"
)

// Names of the fields of the labels (rule L1).
const (
	FieldAccount     = "account"
	FieldDelegate    = "delegate"
	FieldTask        = "task"
	FieldTaskType    = "task_type"
	FieldTransaction = "transaction"
	FieldStage       = "stage"
	FieldStep        = "step"
)

// Labels identify the subject of a log event. Empty labels are omitted.
type Labels struct {
	Account     string
	Delegate    string
	Task        string
	TaskType    string
	Transaction string
	Stage       string
	Step        string
}

// Apply returns a copy of log that adds the labels to every event.
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

// NewContext returns a copy of ctx that carries log. zerolog.Ctx returns the same
// logger.
func NewContext(ctx context.Context, log zerolog.Logger) context.Context {
	return log.WithContext(ctx)
}

// FromContext returns the logger that ctx carries. Without one it returns
// zerolog.DefaultContextLogger if the program has set it, and otherwise a disabled
// logger. It never returns nil.
func FromContext(ctx context.Context) *zerolog.Logger {
	return zerolog.Ctx(ctx)
}

// WithLabels returns a copy of ctx whose logger adds the labels to every event, in
// addition to the labels of the logger of ctx.
func WithLabels(ctx context.Context, l Labels) context.Context {
	return NewContext(ctx, l.Apply(*FromContext(ctx)))
}
