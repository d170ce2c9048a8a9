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
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 16 << 20

// maxWait bounds how long a call with wait is held.
const maxWait = 60 * time.Second

// Handler serves the API of runs:
//
//	POST /api/runs                  Request -> 202 Run
//	GET  /api/runs                  -> Page; pipeline, status, branch, label=NAME=VALUE, text, after, before, limit, page
//	GET  /api/runs/{id}             -> Run; wait=<seconds> waits for its end
//	GET  /api/runs/{id}/definition  -> the YAML
//	GET  /api/runs/{id}/events      server-sent events: {"run":Run,"nodes":[Node]} for each change after since=<version>
//	POST /api/runs/{id}/abort       Order -> Run
//	POST /api/runs/{id}/retry       Order -> Run
//	POST /api/runs/{id}/answer      Order -> Run
//	POST /api/runs/{id}/again       Order -> 202 Run
//	POST /api/lint                  Request -> {"problems":[Problem]}
//
//	PUT    /api/pipelines/{id}      StoredPipeline -> StoredPipeline without its YAML
//	GET    /api/pipelines/{id}      -> StoredPipeline
//	DELETE /api/pipelines/{id}
//	GET    /api/pipelines           -> {"pipelines":[StoredPipeline],"next":"..."}; page=<next>
//	PUT    /api/triggers/{id}       Trigger -> Trigger
//	GET    /api/triggers/{id}       -> Trigger
//	DELETE /api/triggers/{id}
//	GET    /api/triggers            -> {"triggers":[Trigger],"next":"..."}; page=<next>
//
// Errors are {"error_msg":"...","problems":[Problem]}. A 429 or 503 has Retry-After. authenticate answers calls without a valid
// token, and account returns the account of the others; see manager.Manager.Authenticate and
// manager.AccountOf.
func (s *Service) Handler(authenticate func(http.Handler) http.Handler, account func(*http.Request) string) http.Handler {
	a := &api{service: s, account: account}
	r := chi.NewRouter()
	r.Use(authenticate)
	r.Get("/api/runs", a.list)
	r.Post("/api/runs", a.start)
	r.Get("/api/runs/{id}", a.show)
	r.Get("/api/runs/{id}/definition", a.definition)
	r.Get("/api/runs/{id}/events", a.events)
	r.Post("/api/runs/{id}/abort", a.order(http.StatusOK, s.Abort))
	r.Post("/api/runs/{id}/retry", a.order(http.StatusOK, s.Retry))
	r.Post("/api/runs/{id}/answer", a.order(http.StatusOK, s.Answer))
	r.Post("/api/runs/{id}/again", a.order(http.StatusAccepted, s.Again))
	r.Post("/api/lint", a.lint)
	a.routeObjects(r)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusNotFound, "there is no "+r.URL.Path, nil)
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusMethodNotAllowed, r.URL.Path+" does not support the method "+r.Method, nil)
	})
	return r
}

type api struct {
	service *Service
	account func(*http.Request) string
}

func (a *api) start(w http.ResponseWriter, r *http.Request) {
	var req Request
	if !decodeBody(w, r, &req) {
		return
	}
	run, err := a.service.Start(r.Context(), a.account(r), req)
	answer(w, http.StatusAccepted, run, err)
}

func (a *api) lint(w http.ResponseWriter, r *http.Request) {
	var req Request
	if !decodeBody(w, r, &req) {
		return
	}
	problems := Lint(req, a.service.cfg.Settings, a.service.cfg.Templates)
	if problems == nil {
		problems = Problems{}
	}
	answer(w, http.StatusOK, map[string]Problems{"problems": problems}, nil)
}

func (a *api) show(w http.ResponseWriter, r *http.Request) {
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

func (a *api) definition(w http.ResponseWriter, r *http.Request) {
	text, err := a.service.Definition(r.Context(), a.account(r), chi.URLParam(r, "id"))
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text) // the client repeats the call if it did not get the answer
}

func (a *api) order(status int, do func(ctx context.Context, account, id string, o Order) (Run, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var o Order
		if r.ContentLength != 0 && !decodeBody(w, r, &o) {
			return
		}
		run, err := do(r.Context(), a.account(r), chi.URLParam(r, "id"), o)
		answer(w, status, run, err)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "pipeline", "status", "branch", "label", "text", "after", "before", "limit", "page") {
		return
	}
	f, err := filterOf(r.URL.Query())
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	page, err := a.service.Runs(r.Context(), a.account(r), f)
	answer(w, http.StatusOK, page, err)
}

func filterOf(q url.Values) (Filter, error) {
	f := Filter{Pipeline: q.Get("pipeline"), Status: q.Get("status"), Branch: q.Get("branch"), Text: q.Get("text"), Page: q.Get("page")}
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
	for name, into := range map[string]*time.Time{"after": &f.After, "before": &f.Before} {
		if text := q.Get(name); text != "" {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return f, fmt.Errorf("%w: %s is %q: use a time such as 2026-01-31T12:00:00Z", ErrInvalid, name, text)
			}
			*into = t
		}
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
	writeJSON(w, status, struct {
		Message  string   `json:"error_msg"`
		Problems Problems `json:"problems,omitempty"`
	}{message, problems})
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
