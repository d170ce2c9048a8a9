package router

import (
	"context"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/internal/taskkind"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

// Log puts a logger for the task into the handler's context, where
// [logger.FromContext] and [zerolog.Ctx] find it (rules L1, R3). Its labels are the
// account, the delegate, the task's id and type, and its kind. If the task is part
// of a trace, trace_id and span_id name the delegate's own span when router/tracing
// is outside of Log.
//
// Log writes one event at debug level when a task starts and one at info level when
// it ends. The second has the code and HTTP status of the answer, the duration, and
// the outcome that the handlers of package driver/transaction report: transaction,
// stage, step, the status of the command, and its exit code. Of a handler that panicked it
// says so. The payload and the answer of the task are never logged.
//
// [Standard] puts it in its place.
func Log(log zerolog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l := requestLogger(log, r.Context())
			l.Debug().Msg("task started")

			answer, start, panicked := answers.Watch(w), time.Now(), true
			defer func() {
				o := outcome.FromContext(r.Context())
				ended := logger.Labels{Transaction: o.Transaction, Stage: o.Stage, Step: o.Step}.Apply(l)
				event := ended.Info().Dur("duration", time.Since(start))
				if panicked {
					event.Bool("panicked", true).Msg("task ended")
					return
				}
				if o.Status != "" {
					event.Str("status", o.Status)
				}
				if o.Step != "" {
					event.Int("exit_code", o.ExitCode)
				}
				event.Str("code", string(task.CodeOf(answer.Status, answer.Header()))).Int("http_status", answer.Status).Msg("task ended")
			}()
			next.ServeHTTP(answer, r.WithContext(l.WithContext(r.Context())))
			panicked = false
		})
	}
}

// requestLogger returns log with the labels of the request in ctx.
func requestLogger(log zerolog.Logger, ctx context.Context) zerolog.Logger { //nolint:revive // the logger is the subject
	labels := logger.LabelsFromContext(ctx)
	t, ok := task.FromContext(ctx)
	if !ok {
		return labels.Apply(log)
	}
	labels.Account, labels.Task, labels.TaskType = t.Account, t.ID, t.Type
	with := labels.Apply(log).With().Stringer("kind", taskkind.Of(t.Type))
	if trace, span, ok := t.Span(); ok {
		with = with.Str("trace_id", trace).Str("span_id", span)
	}
	return with.Logger()
}
