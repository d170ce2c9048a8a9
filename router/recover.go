package router

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/delegate-io/dlite/task"
	"github.com/rs/zerolog"
)

// Recover turns a panic into a FAILED answer that says what the handler
// panicked with, and logs it at error level with its stack (SPEC P4, R3). A
// handler that ends its goroutine, as a test's FailNow does, is answered FAILED
// too.
//
// It keeps the answer back until the handler has returned, so that a panic
// after half an answer is not mistaken for a success; an answer over
// [task.MaxBody] is FAILED. That also means that nothing inside it can stream
// or hijack. It treats [http.ErrAbortHandler] as any other panic: a task must be
// answered, so there is nothing to abort.
//
// Put it outermost, or directly inside [Log] and [Metrics] when these are to see
// the answer that it makes. [task.Serve] recovers panics as well; this
// middleware adds the log and serves routers that run under a plain HTTP server.
func Recover(log zerolog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := &held{header: make(http.Header)}
			returned := false
			defer func() {
				if returned {
					answer.send(w)
					return
				}
				task.WriteError(w, broken(&log, r, recover()))
			}()
			next.ServeHTTP(answer, r)
			returned = true
		})
	}
}

// broken logs what ended the handler and makes the answer's error of it. A nil
// panic is the end of the goroutine: panic(nil) arrives as a value of its own.
func broken(log *zerolog.Logger, r *http.Request, panicked any) error {
	err := errors.New("the handler ended its goroutine")
	event := log.Error()
	if panicked != nil {
		err = fmt.Errorf("the handler panicked: %v", panicked)
		event = event.Str("stack", string(debug.Stack()))
	}
	if t, ok := task.FromContext(r.Context()); ok {
		event = event.Str("task", t.ID).Str("type", t.Type)
	}
	event.Err(err).Msg("task handler broke")
	return task.Errorf(task.Failed, "%w", err)
}
