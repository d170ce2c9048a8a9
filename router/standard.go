package router

import (
	"slices"

	"github.com/rs/zerolog"
)

// Standard wraps every handler in the supplied middleware, in this order from the
// outside in:
//
//  1. [Log] is outside of Recover and Deadline, so it logs the answers that they
//     make.
//  2. [Recover] is outside of all that may panic.
//  3. [Deadline] with the task's own time-out bounds what follows, for instance the
//     resolution of secrets.
//  4. more, the first one outermost. Here belongs middleware that changes the task
//     or its answer, such as Resolve of package router/secrets.
//
// Middleware that only observes, such as [Metrics] and router/tracing, belongs
// outside: give it to [WithMiddleware] before Standard. It then sees the final
// answer, and Log names the span of the delegate.
//
//	router.New(routes, router.WithMiddleware(router.Metrics(observe)), router.Standard(log, secrets.Resolve(cfg)))
func Standard(log zerolog.Logger, more ...Middleware) Option {
	return WithMiddleware(slices.Concat([]Middleware{Log(log), Recover(log), Deadline(0)}, more)...)
}
