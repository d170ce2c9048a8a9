package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
)

// Handler serves the agent's API (docs/protocol.md, section 5). It authenticates no caller: the
// server around it does, see [Server].
func (a *Agent) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(a.recover)
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := Health{Version: a.cfg.Version, OK: true, Agent: agentName}
		if a.cfg.Interruption != nil {
			h.Interruption = a.cfg.Interruption()
		}
		answer(w, http.StatusOK, h)
	})
	r.Post("/setup", handle(a, a.setup))
	r.Post("/start_step", handle(a, a.startStep))
	r.Post("/poll_step", handle(a, a.pollStep))
	r.Post("/stop_step", handle(a, a.stopStep))
	r.Post("/destroy", handle(a, func(ctx context.Context, _ *DestroyRequest) (*struct{}, error) { return nothing, a.destroy(ctx) }))
	r.Post("/suspend", handle(a, func(context.Context, *struct{}) (*struct{}, error) { return nothing, nil }))
	r.Post("/stream_output", a.streamOutput)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("unknown call %s", r.URL.Path))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusMethodNotAllowed, fmt.Errorf("%s does not take %s", r.URL.Path, r.Method))
	})
	return r
}

var nothing = &struct{}{}

func (a *Agent) startStep(_ context.Context, req *StartStepRequest) (*struct{}, error) {
	if req.stepKey() == "" {
		return nil, badRequest(errors.New("the step has neither an id nor a key"))
	}
	t, err := a.ready()
	if err != nil {
		return nil, err
	}
	return nothing, t.start(req)
}

func (a *Agent) pollStep(ctx context.Context, req *stepID) (*pollStepResponse, error) {
	t, err := a.ready()
	if err != nil {
		return nil, badRequest(errNotStarted)
	}
	s, err := t.find(req.ID)
	if err != nil {
		return nil, err
	}
	full, err := s.poll(ctx)
	if err != nil || !req.Own {
		return full, err
	}
	return &pollStepResponse{Result: full.Result, Failure: full.Failure, Length: full.Length}, nil
}

func (a *Agent) stopStep(ctx context.Context, req *stopRequest) (*struct{}, error) {
	t, err := a.ready()
	if err != nil {
		return nothing, nil //nolint:nilerr // an unknown step does not run
	}
	if s := t.findOrBar(req.ID); s != nil {
		return nothing, s.end(ctx, req.Cause)
	}
	return nothing, nil
}

// ready returns the current stage if its setup has succeeded.
func (a *Agent) ready() (*transaction, error) {
	t, err := a.current()
	if err != nil {
		return nil, err
	}
	select {
	case <-t.ready:
		if t.initErr == nil {
			return t, nil
		}
	default:
	}
	return nil, badRequest(errNoSetup)
}

// startWait is the time that a stream waits for its step. Some drivers request the output just
// before they start the step.
const startWait = 5 * time.Second

func (a *Agent) streamOutput(w http.ResponseWriter, r *http.Request) {
	var req streamRequest
	if err := a.read(w, r, &req); err != nil {
		fail(w, statusOf(err), err)
		return
	}
	if req.Offset < 0 {
		fail(w, http.StatusBadRequest, fmt.Errorf("the offset %d is negative", req.Offset))
		return
	}
	t, err := a.ready()
	if err != nil {
		fail(w, http.StatusBadRequest, errNotStarted)
		return
	}
	s, err := t.await(r.Context(), req.ID, startWait)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	_ = rc.Flush() // tells the client that the stream is open
	if err := s.out.copyTo(r.Context(), &flusher{w, rc}, req.Offset); err != nil {
		// A regular end would look like the end of the output.
		panic(http.ErrAbortHandler)
	}
}

// flusher flushes after each write.
type flusher struct {
	w  io.Writer
	rc *http.ResponseController
}

// Write implements [io.Writer].
func (f *flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.rc.Flush()
}

// handle adapts f to an HTTP handler with JSON bodies.
func handle[In, Out any](a *Agent, f func(context.Context, *In) (*Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in := new(In)
		if err := a.read(w, r, in); err != nil {
			fail(w, statusOf(err), err)
			return
		}
		out, err := f(r.Context(), in)
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		answer(w, http.StatusOK, out)
	}
}

// read decodes a body. A missing body counts as an empty one.
func (a *Agent) read(w http.ResponseWriter, r *http.Request, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.cfg.MaxBody))
	if err != nil {
		return badRequest(fmt.Errorf("read the request: %w", err))
	}
	if len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return badRequest(fmt.Errorf("decode the request: %w", err))
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone asks again
}

func fail(w http.ResponseWriter, status int, err error) {
	e := Error{Message: err.Error()}
	if failed := (*setupError)(nil); errors.As(err, &failed) {
		e.Log = failed.log
	}
	answer(w, status, e)
}

// requestError is an error that the caller caused.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }

func badRequest(err error) error { return requestError{err} }

func statusOf(err error) int {
	if bad := (requestError{}); errors.As(err, &bad) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// recover answers 500 if a handler panics.
func (a *Agent) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			a.cfg.Log.Error().Str("call", r.URL.Path).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("a call panicked")
			fail(w, http.StatusInternalServerError, errors.New("internal error"))
		}()
		next.ServeHTTP(w, r)
	})
}
