package logger

import (
	"context"

	"github.com/rs/zerolog"
)

// Labels identify the subject of a log event (rule L1). Empty labels are omitted. The
// fields of an event are account, delegate, task, task_type, transaction, stage and step.
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
		{"account", l.Account},
		{"delegate", l.Delegate},
		{"task", l.Task},
		{"task_type", l.TaskType},
		{"transaction", l.Transaction},
		{"stage", l.Stage},
		{"step", l.Step},
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
