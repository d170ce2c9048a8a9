// Package secrets is middleware that resolves the secrets that a task brings along, and masks
// them in the logs and answers of its handler.
package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/answers"
	"github.com/delegate-io/dlite/internal/outcome"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Resolve resolves the secret references in a task's data before the handler sees
// it (rules S1, R3). Package secrets describes references and templates; cfg names
// the providers.
//
// The task's own secret tasks run first, in order, and each may use the secrets of
// the earlier ones (docs/protocol.md, section 2). Resolve handles those of type
// [task.TypeSecretStatic]. All others go to the handler of their type, or to the
// fallback. Their answer is {"id","value"}, also inside the answer of a CGI
// program. References use the id of the secret task. An id in the answer is a
// second name, unless it is taken. The handler gets the task without its secret
// tasks.
//
// The handler's context carries the [secrets.Set] of the task with all resolved
// and derived values, see [secrets.FromContext]. An existing set is used. The
// logger of the context ([logger.FromContext]) is masked with it. An answer other
// than OK and the value of a panic are masked too. A successful answer is not
// masked, because a handler may have to return a secret.
//
// A reference that cannot be resolved, and a secret task that fails, fail the
// task. A task with Literal set has no references. Put Resolve inside [router.Standard], which bounds it and logs its
// failures.
func Resolve(cfg secrets.ResolverConfig) router.Middleware {
	static := secrets.StaticHandler()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, err := task.Decode(r, nil)
			if err != nil {
				task.WriteError(w, err)
				return
			}
			set := secrets.FromContext(r.Context())
			if set == nil {
				set = secrets.NewSet(cfg.Masks)
			}
			ctx := secrets.NewContext(r.Context(), set)
			if log := logger.FromContext(ctx); log.GetLevel() != zerolog.Disabled {
				ctx = logger.NewContext(ctx, logger.Masked(*log, set))
			}
			answer := &masked{ResponseWriter: w, set: set}
			defer func() {
				if p := recover(); p != nil {
					panic(maskPanic(set, p))
				}
			}()
			resolved, err := (&resolution{
				resolver: secrets.NewResolver(set, cfg), next: next, static: static,
			}).run(ctx, t)
			if err != nil {
				// The time-out of a provider is not a time-out of the task.
				task.WriteError(answer, task.Errorf(task.Failed, "%w", err))
			} else {
				next.ServeHTTP(answer, task.WithTask(r.WithContext(ctx), resolved))
			}
			answer.finish()
		})
	}
}

// resolution resolves the secrets of one task.
type resolution struct {
	resolver     *secrets.Resolver
	next, static http.Handler
}

// run returns the task for the handler. It is t itself if t has no secrets.
func (s *resolution) run(ctx context.Context, t *task.Task) (*task.Task, error) {
	for _, secret := range t.Secrets {
		if err := s.define(ctx, secret); err != nil {
			return nil, err
		}
	}
	data := t.Data
	if !t.Literal {
		var err error
		if data, err = s.resolver.Resolve(ctx, t.Data); err != nil {
			return nil, err
		}
	}
	if len(t.Secrets) == 0 && bytes.Equal(data, t.Data) {
		return t, nil
	}
	c := *t
	c.Data, c.Secrets = data, nil
	return &c, nil
}

// define runs a secret task and adds its answer to the secrets.
func (s *resolution) define(ctx context.Context, t *task.Task) error {
	c := *t
	var err error
	if c.Data, err = s.resolver.Resolve(ctx, t.Data); err != nil {
		return fmt.Errorf("secret task %q: %w", t.ID, err)
	}
	h := s.next
	if t.Type == task.TypeSecretStatic {
		h = s.static
	}
	resp, _ := task.Serve(outcome.Track(ctx), h, &c) // its report is not about the task
	if resp.Code != task.OK {
		return fmt.Errorf("secret task %q (%s): %s", t.ID, t.Type, resp.Error)
	}
	id, value, err := secretOf(resp.Data)
	if err != nil {
		return fmt.Errorf("secret task %q (%s): %w", t.ID, t.Type, err)
	}
	if t.ID != "" {
		err = s.resolver.Define(t.ID, value)
	}
	if id != "" && !s.resolver.Defined(id) {
		err = errors.Join(err, s.resolver.Define(id, value))
	}
	return err
}

// secretOf decodes the answer of a secret task. Its errors contain nothing of the
// answer.
func secretOf(data []byte) (id, value string, err error) {
	var a struct {
		ID     string  `json:"id"`
		Value  *string `json:"value"`
		Status int     `json:"status_code"` // with Body: the answer of a CGI program
		Body   *string `json:"body"`
	}
	if json.Unmarshal(data, &a) != nil {
		return "", "", errors.New("its answer is not of the form {\"id\",\"value\"}")
	}
	if a.Value == nil && a.Body != nil {
		if a.Status < 200 || a.Status > 299 {
			return "", "", fmt.Errorf("its program answered with status %d", a.Status)
		}
		body, err := base64.StdEncoding.DecodeString(*a.Body)
		if err != nil || json.Unmarshal(body, &a) != nil {
			return "", "", errors.New("its program's answer is not of the form {\"id\",\"value\"}")
		}
	}
	if a.Value == nil {
		return "", "", errors.New("its answer has no value")
	}
	return a.ID, *a.Value, nil
}

// masked passes a successful answer on as it comes. It holds any other answer until
// it is complete, and masks it.
type masked struct {
	http.ResponseWriter
	set    *secrets.Set
	status int
	held   *answers.Buffer // nil while the answer passes through
}

func (w *masked) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // 1xx does not end the head
		w.status = status
		if task.CodeOf(status, w.Header()) != task.OK {
			w.held = answers.NewBuffer(task.MaxBody)
		}
	}
	if w.held != nil {
		w.held.WriteHeader(status)
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *masked) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.held != nil {
		return w.held.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the writer below. It cannot show a
// held answer there.
func (w *masked) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish sends a held answer.
func (w *masked) finish() {
	if w.held == nil {
		return
	}
	w.Header().Del("Content-Length")
	w.held.Rewrite(w.set.Mask)
	if err := w.held.Send(w.ResponseWriter); err != nil {
		task.WriteError(w.ResponseWriter, err)
	}
}

// maskPanic masks the value of a panic. A value without a secret stays as it is,
// so that its type is kept.
func maskPanic(set *secrets.Set, p any) any {
	text := fmt.Sprint(p)
	if m := set.Mask(text); m != text {
		return m
	}
	return p
}
