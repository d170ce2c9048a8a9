package router

import (
	"net/http"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

// Recover turns a panic into a FAILED answer with the panic's value as the reason,
// and logs it at error level with its stack (rules P4, R3). A handler that ends its
// goroutine, as a test's FailNow does, is answered FAILED too.
//
// It holds the answer until the handler has returned, so that a panic after a part
// of the answer is not mistaken for a success. An answer over [task.MaxBody] is
// FAILED. Nothing inside it can therefore stream or hijack. It treats
// [http.ErrAbortHandler] as any other panic, because a task must be answered.
//
// [Standard] puts it in its place. [task.Serve], which the poller uses, recovers
// panics in the same way; this middleware adds the log and serves routers that run
// under a plain HTTP server.
func Recover(log zerolog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := answers.NewBuffer(task.MaxBody)
			stack, err := answers.Call(next, answer, r)
			if err == nil {
				if err := answer.Send(w); err != nil {
					task.WriteError(w, err)
				}
				return
			}
			l := requestLogger(log, r.Context())
			event := l.Error().Err(err)
			if stack != nil {
				event = event.Str("stack", string(stack))
			}
			event.Msg("the handler of a task did not return")
			task.WriteError(w, task.Errorf(task.Failed, "%w", err))
		})
	}
}
