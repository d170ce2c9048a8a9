package router

import (
	"net/http"
	"time"

	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

// Log puts a logger that names the task into the handler's context, where
// [zerolog.Ctx] finds it (SPEC L1, R3). Its fields are task (the id), type, kind
// and, where the task has them, account, trace_id and span_id: those of the
// delegate's own span inside the middleware of router/tracing. It logs the start of a task at debug
// level and the end, with code, status and duration, at info level; the end of
// one that panicked says so. What the task carries is never logged.
//
// To have the code of a task that panics logged as well, put [Recover] inside.
func Log(log zerolog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			with := log.With()
			if t, ok := task.FromContext(r.Context()); ok {
				with = with.Str("task", t.ID).Str("type", t.Type).Stringer("kind", task.KindOf(t.Type))
				if t.Account != "" {
					with = with.Str("account", t.Account)
				}
				if trace, span, ok := t.Span(); ok {
					with = with.Str("trace_id", trace).Str("span_id", span)
				}
			}
			l := with.Logger()
			l.Debug().Msg("task started")

			answer, start, panicked := task.Watch(w), time.Now(), true
			defer func() {
				event := l.Info().Dur("duration", time.Since(start))
				if panicked {
					event.Bool("panicked", true).Msg("task ended")
					return
				}
				event.Str("code", string(answer.Code())).Int("status", answer.Status).Msg("task ended")
			}()
			next.ServeHTTP(answer, r.WithContext(l.WithContext(r.Context())))
			panicked = false
		})
	}
}
