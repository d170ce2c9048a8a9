package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// maxWait bounds how long a call with wait is held.
const maxWait = 60 * time.Second

// Handler serves the API of runs:
//
//	POST /api/runs                  RunRequest -> 202 Run
//	GET  /api/runs                  -> RunPage; pipeline, status, branch, delegate, label=NAME=VALUE, text, after, before, limit, page
//	GET  /api/run-events            server-sent events: Run without nodes for each run that has changed, at most once a second
//	GET  /api/runs/{id}             -> Run; wait=<seconds> waits for its end
//	GET  /api/runs/{id}/definition  -> the YAML
//	GET  /api/runs/{id}/resolved    -> the YAML as it ran
//	GET  /api/runs/{id}/inputs      -> {"inputs":[{"name","value"}]}
//	GET  /api/runs/{id}/diff        what differs from the run with=<id>
//	GET  /api/runs/{id}/events      server-sent events: {"run":Run,"nodes":[Node]} for each change after since=<version>
//	GET  /api/runs/{id}/logs        server-sent events with lines, and the event "end"; since=<id>, format=text
//	POST /api/runs/{id}/abort       Order -> Run
//	POST /api/runs/{id}/retry       Order -> Run
//	POST /api/runs/{id}/answer      Order -> Run
//	POST /api/runs/{id}/again       Order -> 202 Run
//	POST /api/lint                  RunRequest -> {"problems":[Problem]}
//
//	GET  /api/history/stages        -> EndedPage; the parameters of GET /api/runs
//	GET  /api/history/stages/{id}   -> the Stage of the manager
//	GET  /api/history/outcomes      -> {"days":[Outcomes]}; of=runs or stages, pipeline, after, before
//
//	PUT    /api/pipelines/{id}      Pipeline -> Pipeline without its YAML
//	GET    /api/pipelines/{id}      -> Pipeline
//	DELETE /api/pipelines/{id}
//	GET    /api/pipelines           -> {"pipelines":[Pipeline],"next":"..."}; page=<next>
//	PUT    /api/triggers/{id}       Trigger -> Trigger
//	GET    /api/triggers/{id}       -> Trigger
//	DELETE /api/triggers/{id}
//	GET    /api/triggers            -> {"triggers":[Trigger],"next":"..."}; page=<next>
//
//	GET    /api/letters             -> {"letters":[{"id","run_id","topic","kind","node","tries","problem"}],"next":"..."}; page=<next>
//	POST   /api/letters/{id}/deliver  delivers a dead letter again
//	DELETE /api/letters/{id}
//
// These are the logs of all steps, and of the inits of the stages, of all attempts. Each event has lines of one log in
// their order:
//
//	{"node":"pipeline.stages.build.spec.execution.steps.test","kind":"step","attempt":1,"log_key":"r1.build/test",
//	 "lines":[{"level":"info","pos":0,"out":"text\n","time":"2026-01-31T12:00:00Z","args":null}]}
//
// Kind is stage for the log of an init. Lines of steps that run at the same time come as they arrive; logs of attempts that had ended before the
// call come one after the other. The id of an event is the place after it: a client that continues with it, as since or as
// the header Last-Event-ID, misses no line and gets none twice. The answer to the id of the event "end" is 204. If a
// connection ends without the event "end", the client continues with the last id. format=text has lines such as
// "build/test | text" without ids, and a comment keeps idle streams of events alive every 15 seconds. A stream follows 64 logs at a
// time; the others come later. An account may have 50 streams. A log without an end, for example of a delegate that was
// lost, is left 5 seconds after the end of its step. The event "end" names it:
//
//	{"status":"FAILED","unfinished":{"r1.build/test":"the log has no end"}}
//
// The resolved YAML is for people. It has templates, inputs and the recorded values of expressions in place, and the
// children of a strategy instead of it. A secret is a reference. An expression that was not evaluated, whose value is
// longer than 2048 bytes, or that exceeds the 100 expressions or 64 KiB that a node records, stays as it is. A diff
// is
//
//	{"run":Run,"other":Run,"definition":"unified diff of the YAML with templates and inputs in place",
//	 "inputs":[{"name":"pipeline.variables.tag","value":"v1"}],
//	 "nodes":[{"path":"...","kind":"step","identifier":"test","changed":true,"status":"FAILED","other_status":"SUCCEEDED",
//	           "duration_ms":120,"other_duration_ms":80,"outputs":[{"name":"V","value":"1","other":"2"}]}]}
//
// where inputs also has the values of codebase, trigger and variable, and nodes has all nodes of both runs. A value or duration
// that a run does not have is absent.
//
// Errors are {"error_msg":"...","problems":[Problem]}. A 429 or 503 has Retry-After. authenticate answers calls without a valid
// token, and account returns the account of the others; see manager.Manager.Authenticate and
// manager.AccountOf.
func (s *Service) Handler(authenticate func(http.Handler) http.Handler, account func(*http.Request) string) http.Handler {
	a := &handlers{service: s, account: account}
	r := chi.NewRouter()
	r.Use(authenticate)
	r.Get("/api/runs", filtered(a, s.Runs))
	r.Get("/api/runs/{id}", a.show)
	r.Get("/api/runs/{id}/events", a.events)
	r.Get("/api/runs/{id}/logs", a.logs)
	r.Get("/api/runs/{id}/diff", a.diff)
	r.Group(func(r chi.Router) {
		r.Use(noParameters)
		r.Get("/api/run-events", a.runEvents)
		r.Post("/api/runs", a.start)
		r.Get("/api/runs/{id}/definition", a.text(s.Definition))
		r.Get("/api/runs/{id}/resolved", a.text(s.resolved))
		r.Get("/api/runs/{id}/inputs", a.inputs)
		r.Post("/api/runs/{id}/abort", a.order(http.StatusOK, s.Abort))
		r.Post("/api/runs/{id}/retry", a.order(http.StatusOK, s.Retry))
		r.Post("/api/runs/{id}/answer", a.order(http.StatusOK, s.Answer))
		r.Post("/api/runs/{id}/again", a.order(http.StatusAccepted, s.Again))
		r.Post("/api/lint", a.lint)
	})
	r.Get("/api/history/stages", filtered(a, s.EndedStages))
	r.With(noParameters).Get("/api/history/stages/{id}", a.endedStage)
	r.Get("/api/history/outcomes", a.outcomes)
	a.routeObjects(r)
	a.routeLetters(r)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusNotFound, "there is no "+r.URL.Path, nil)
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusMethodNotAllowed, r.URL.Path+" does not support the method "+r.Method, nil)
	})
	return r
}

type handlers struct {
	service *Service
	account func(*http.Request) string
}

func (a *handlers) start(w http.ResponseWriter, r *http.Request) {
	var req api.RunRequest
	if !decodeBody(w, r, &req) {
		return
	}
	run, err := a.service.Start(r.Context(), a.account(r), req)
	answer(w, http.StatusAccepted, run, err)
}

func (a *handlers) lint(w http.ResponseWriter, r *http.Request) {
	var req api.RunRequest
	if !decodeBody(w, r, &req) {
		return
	}
	problems := shownProblems(Lint(req, a.service.cfg.Settings, a.service.cfg.Templates))
	answer(w, http.StatusOK, map[string][]api.Problem{"problems": append([]api.Problem{}, problems...)}, nil)
}

func (a *handlers) show(w http.ResponseWriter, r *http.Request) {
	wait, ok := waitOf(w, r)
	if !ok {
		return
	}
	run, err := a.service.hold(r.Context(), a.account(r), chi.URLParam(r, "id"), wait)
	answer(w, http.StatusOK, run, err)
}

// waitOf returns the parameter wait.
func waitOf(w http.ResponseWriter, r *http.Request) (time.Duration, bool) {
	if !knownParameters(w, r, "wait") {
		return 0, false
	}
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, true
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "wait is not a number of whole seconds: "+strconv.Quote(text), nil)
		return 0, false
	}
	return min(time.Duration(seconds)*time.Second, maxWait), true
}

// text answers with YAML.
func (a *handlers) text(of func(ctx context.Context, account, id string) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := of(r.Context(), a.account(r), chi.URLParam(r, "id"))
		if err != nil {
			answer(w, 0, nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(text) // the client repeats the call if it did not get the answer
	}
}

func (a *handlers) inputs(w http.ResponseWriter, r *http.Request) {
	all, err := a.service.inputs(r.Context(), a.account(r), chi.URLParam(r, "id"))
	answer(w, http.StatusOK, map[string][]api.NodeValue{"inputs": all}, err)
}

func (a *handlers) diff(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "with") {
		return
	}
	other := r.URL.Query().Get("with")
	if other == "" {
		writeStatus(w, http.StatusBadRequest, "with is missing: name the run to compare with", nil)
		return
	}
	d, err := a.service.diff(r.Context(), a.account(r), chi.URLParam(r, "id"), other)
	answer(w, http.StatusOK, d, err)
}

func (a *handlers) order(status int, do func(ctx context.Context, account, id string, o api.Order) (api.Run, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o api.Order
		if r.ContentLength != 0 && !decodeBody(w, r, &o) {
			return
		}
		run, err := do(r.Context(), a.account(r), chi.URLParam(r, "id"), o)
		answer(w, status, run, err)
	}
}

// filtered serves a list of runs or ended stages.
func filtered[P any](a *handlers, of func(context.Context, string, api.RunFilter) (P, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !knownParameters(w, r, "pipeline", "status", "branch", "delegate", "label", "text", "after", "before", "limit", "page") {
			return
		}
		f, err := filterOf(r.URL.Query())
		if err != nil {
			answer(w, 0, nil, err)
			return
		}
		page, err := of(r.Context(), a.account(r), f)
		answer(w, http.StatusOK, page, err)
	}
}

func filterOf(q url.Values) (api.RunFilter, error) {
	f := api.RunFilter{Pipeline: q.Get("pipeline"), Status: q.Get("status"), Branch: q.Get("branch"), Delegate: q.Get("delegate"), Text: q.Get("text"), Page: q.Get("page")}
	for _, label := range q["label"] {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return f, fmt.Errorf("%w: label is %q: use label=NAME=VALUE", ErrInvalid, label)
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[name] = value
	}
	if err := timesOf(q, time.RFC3339, "a time such as 2026-01-31T12:00:00Z", &f.After, &f.Before); err != nil {
		return f, err
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return f, fmt.Errorf("%w: limit is %q: use 1 to %d", ErrInvalid, text, maxPage)
		}
		f.Limit = n
	}
	return f, nil
}

// timesOf reads the parameters after and before. The error names the form.
func timesOf(q url.Values, layout, form string, after, before *time.Time) error {
	for name, into := range map[string]*time.Time{"after": after, "before": before} {
		if text := q.Get(name); text != "" {
			t, err := time.Parse(layout, text)
			if err != nil {
				return fmt.Errorf("%w: %s is %q: use %s", ErrInvalid, name, text, form)
			}
			*into = t
		}
	}
	return nil
}

// knownParameters refuses parameters of the query that the call does not know.
func knownParameters(w http.ResponseWriter, r *http.Request, known ...string) bool {
	for name := range r.URL.Query() {
		if name != "accountId" && !slices.Contains(known, name) {
			writeStatus(w, http.StatusBadRequest, fmt.Sprintf("unknown parameter %q: this call knows %s", name, strings.Join(append(known, "accountId"), ", ")), nil)
			return false
		}
	}
	return true
}

// noParameters is a middleware for calls that know no parameter.
func noParameters(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if knownParameters(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// decodeBody decodes a body strictly. If it reports false, it has answered the request.
func decodeBody(w http.ResponseWriter, r *http.Request, v any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		writeStatus(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit), nil)
		return false
	}
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "reading the body: "+err.Error(), nil)
		return false
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		writeStatus(w, http.StatusBadRequest, "the body is not valid JSON for this call: "+err.Error(), nil)
		return false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		writeStatus(w, http.StatusBadRequest, "the body has text after its JSON value", nil)
		return false
	}
	return true
}

// answer writes a result, or the error with the status that stands for it.
func answer(w http.ResponseWriter, status int, v any, err error) {
	var problems Problems
	errors.As(err, &problems)
	switch {
	case err == nil:
		writeJSON(w, status, v)
	case errors.Is(err, ErrInvalid):
		writeStatus(w, http.StatusBadRequest, err.Error(), problems)
	case errors.Is(err, ErrBudget):
		w.Header().Set("Retry-After", "5")
		writeStatus(w, http.StatusTooManyRequests, err.Error(), nil)
	case errors.Is(err, ErrNotFound):
		writeStatus(w, http.StatusNotFound, err.Error(), nil)
	case errors.Is(err, ErrConflict):
		writeStatus(w, http.StatusConflict, err.Error(), nil)
	default: // the database
		w.Header().Set("Retry-After", "1")
		writeStatus(w, http.StatusServiceUnavailable, err.Error(), nil)
	}
}

func writeStatus(w http.ResponseWriter, status int, message string, problems Problems) {
	writeJSON(w, status, &api.Error{Message: message, Problems: shownProblems(problems)})
}

// shownProblems returns the API's form of problems.
func shownProblems(problems Problems) []api.Problem {
	var all []api.Problem
	for _, p := range problems {
		all = append(all, api.Problem{
			File: p.File, Line: p.Line, Column: p.Column, Severity: p.Severity.String(), Code: p.Code, Path: p.Path, Text: p.Text, Hint: p.Hint,
		})
	}
	return all
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client repeats the call if it did not get the answer
}
