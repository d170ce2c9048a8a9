package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/journal"
	"github.com/delegate-io/dlite/manager/internal/perpetual"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

func (m *Manager) routes() http.Handler {
	r, known := chi.NewRouter(), knownShapes()
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusNotFound, "there is no "+r.URL.Path)
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeStatus(w, http.StatusMethodNotAllowed, r.URL.Path+" does not support the method "+r.Method)
	})
	r.Get("/api/openapi.json", describe)
	r.Group(func(r chi.Router) {
		r.Use(m.Authenticate)
		r.Route("/api/agent", func(r chi.Router) {
			r.Post("/delegates/register", m.register)
			r.Post("/delegates/heartbeat-with-polling", m.heartbeat)
			r.Post("/delegates/unregister", m.unregister)
			r.Post("/delegates/upgrade", m.askUpgrade)
			r.Post("/delegates/register-delegate-capacity/{delegate}", m.capacity)
			r.Get("/delegates/{delegate}/task-events", m.pollV1)
			r.Put("/v2/delegates/{delegate}/tasks/{task}/acquire", m.acquireV1)
			r.Post("/v2/tasks/{task}/delegates/{delegate}", m.respondLegacy)
			r.Post("/perpetual/{delegate}/reconcile", m.reconcilePerpetual)
		})
		r.Route("/api/executions", func(r chi.Router) {
			r.Get("/{delegate}/runner-events", m.pollV2)
			r.Get("/{task}/request", m.acquireV2)
			r.Post("/{task}/response", m.respondRunner("delegateId"))
			r.Post("/{task}/task-response", m.respondRunner("runnerId"))
		})
		r.Post("/api/daemons/{delegate}/reconcile", m.reconcileDaemons)
		r.Post("/api/daemons/{delegate}/tasks", m.acquireDaemonTasks)
		r.With(parameters("status", "pipeline", "label", "limit", "after")).Get("/api/stages", m.listStages)
		r.With(parameters("after", "limit")).Get("/api/ended-stages", m.listEnded)
		r.With(parameters("wait")).Get("/api/stages/{id}", m.showStage)
		r.With(parameters("wait")).Get("/api/tasks/{id}", m.showTask)
		r.With(parameters("stage", "since")).Get("/api/events", m.streamEvents)
		r.With(parameters("tags", "infra", "pipeline", "label")).Get("/api/demand", m.showDemand)
		r.With(parameters("after", "limit")).Get("/api/perpetual", m.listPerpetual)
		r.Group(func(r chi.Router) {
			r.Use(parameters())
			r.Put("/api/perpetual/{id}", setHandler(m, "perpetual task", known.perpetual, func(t *api.PerpetualTask) *string { return &t.ID }, m.SetPerpetual))
			r.Get("/api/perpetual/{id}", showHandler(m, m.Perpetual))
			r.Delete("/api/perpetual/{id}", deleteHandler(m.DeletePerpetual))
			r.Post("/api/perpetual/{id}/pause", m.pausePerpetual)
			r.Post("/api/perpetual/{id}/resume", m.perpetualHandler(m.ResumePerpetual))
			r.Post("/api/perpetual/{id}/run", m.perpetualHandler(m.RunPerpetual))
			r.Post("/api/stages", m.postStage)
			r.Post("/api/stages/{id}/abort", m.stageHandler(m.AbortStage))
			r.Post("/api/stages/{id}/steps", m.postSteps)
			r.Get("/api/stages/{id}/steps/{step}", m.showStep)
			r.Post("/api/stages/{id}/steps/{step}/abort", m.abortStep)
			r.Post("/api/stages/{id}/finish", m.stageHandler(m.FinishStage))
			r.Post("/api/stages/{id}/renew", m.stageHandler(m.RenewStage))
			r.Post("/api/tasks", m.postTask)
			r.Post("/api/tasks/{id}/abort", m.abortTask)
			r.Get("/api/delegates", m.listDelegates)
			r.Post("/api/delegates/{id}/drain", m.drainHandler(true))
			r.Post("/api/delegates/{id}/resume", m.drainHandler(false))
			r.Get("/api/queue", m.showQueue)
			r.Post("/api/abort", m.postAbort)
			r.Post("/api/pause", m.postPause)
			r.Post("/api/resume", m.postResume)
			r.Get("/api/limits", m.listLimits)
			r.Put("/api/limits", m.putLimit)
			r.Get("/api/daemon-sets", m.listDaemonSets)
			r.Put("/api/daemon-sets/{id}", m.putDaemonSet)
			r.Get("/api/daemon-sets/{id}", m.showDaemonSet)
			r.Delete("/api/daemon-sets/{id}", m.deleteDaemonSet)
			r.Put("/api/daemon-sets/{id}/tasks/{task}", m.putDaemonTask)
			r.Delete("/api/daemon-sets/{id}/tasks/{task}", m.deleteDaemonTask)
			r.Get("/api/schedules", m.listSchedules)
			r.Put("/api/schedules/{id}", setHandler(m, "schedule", known.schedule, func(s *api.Schedule) *string { return &s.ID }, m.SetSchedule))
			r.Get("/api/schedules/{id}", showHandler(m, m.Schedule))
			r.Delete("/api/schedules/{id}", deleteHandler(m.DeleteSchedule))
			r.Post("/api/schedules/{id}/trigger", m.triggerSchedule)
			r.Get("/api/upgrade", m.showUpgrade)
			r.Put("/api/upgrade", m.putUpgrade)
			r.Delete("/api/upgrade", m.deleteUpgrade)
			r.Get("/api/connectors", m.listConnectors)
			r.Put("/api/connectors/{id}", setHandler(m, "connector", known.connector, func(c *api.Connector) *string { return &c.ID }, m.SetConnector))
			r.Get("/api/connectors/{id}", showHandler(m, m.Connector))
			r.Delete("/api/connectors/{id}", deleteHandler(m.DeleteConnector))
			r.Post("/api/connectors/{id}/test", m.testConnector)
		})
	})
	return r
}

// describe serves the description of the API. It is the same for everyone and needs no token.
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(api.OpenAPI()) // the client repeats the call if it did not get the answer
}

// pathParam returns a path parameter without escapes. chi leaves the escapes of a
// raw path in place.
func pathParam(r *http.Request, name string) string {
	p := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return p
	}
	if plain, err := url.PathUnescape(p); err == nil {
		return plain
	}
	return p
}

// decodeStrict decodes a request's body into v and refuses members that the shape
// does not list. If it reports false, it has already answered the request with an
// error.
func (m *Manager) decodeStrict(w http.ResponseWriter, r *http.Request, v any, known submissionShape) bool {
	b, ok := m.readAndDecode(w, r, v, known.bounds)
	if !ok {
		return false
	}
	if err := known.check(b, ""); err != nil {
		writeError(w, err)
		return false
	}
	return true
}

// decodeBody decodes a request's body into v. If it reports false, it has already
// answered the request with an error.
func (m *Manager) decodeBody(w http.ResponseWriter, r *http.Request, v any) bool {
	_, ok := m.readAndDecode(w, r, v, submissionBounds)
	return ok
}

// readAndDecode reads a request's body, checks its bounds and decodes it into v. The
// bounds come first, because decoding a deeply nested value is slow.
func (m *Manager) readAndDecode(w http.ResponseWriter, r *http.Request, v any, bounds textBounds) ([]byte, bool) {
	b, err := m.readBody(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeStatus(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
		return nil, false
	case err != nil:
		bodyError(w, err)
		return nil, false
	}
	if err := bounds.check(b, ""); err != nil {
		writeError(w, err)
		return nil, false
	}
	if err := json.Unmarshal(b, v); err != nil {
		writeStatus(w, http.StatusBadRequest, "the body is not valid JSON for this call: "+decodeProblem(err))
		return nil, false
	}
	return b, true
}

// decodeProblem describes an error of the decoder. It names the path of a value of a
// wrong type, without the Go type.
func decodeProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Sprintf("%s: a value of type %s is not allowed here", wrong.Field, wrong.Value)
	}
	return err.Error()
}

// waitParam parses the wait parameter of the query and reports whether there is one.
// If ok is false, it has already answered the request with an error.
func (m *Manager) waitParam(w http.ResponseWriter, r *http.Request) (wait time.Duration, given, ok bool) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, false, true
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		writeStatus(w, http.StatusBadRequest, "wait is not a number of whole seconds: "+strconv.Quote(text))
		return 0, true, false
	}
	return min(time.Duration(seconds)*time.Second, m.cfg.MaxWait), true, true
}

// writeJSON writes v as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeStatus(w, http.StatusInternalServerError, "encoding the answer: "+err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client repeats the call if it did not get the answer
}

// writeStatus writes an error with a status.
func writeStatus(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, struct {
		Message string `json:"error_msg"`
	}{message})
}

// writeError writes an error with the status that stands for it.
func writeError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrInvalid):
		writeStatus(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ErrBudget), errors.Is(err, perpetual.ErrFull):
		w.Header().Set("Retry-After", "5")
		writeStatus(w, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, ErrConflict), errors.Is(err, ErrNotOpen), errors.Is(err, queue.ErrNotOwner), errors.Is(err, errOldDelegate), errors.Is(err, perpetual.ErrPaused):
		writeStatus(w, http.StatusConflict, err.Error())
	case errors.Is(err, queue.ErrUnknownDelegate), errors.Is(err, perpetual.ErrUnknownDelegate):
		writeStatus(w, http.StatusNotFound, "unknown delegate: register again")
	case errors.Is(err, ErrClosed), errors.Is(err, journal.ErrUnavailable), errors.Is(err, journal.ErrReadOnly):
		w.Header().Set("Retry-After", "1")
		writeStatus(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, ErrNotFound), errors.Is(err, queue.ErrUnknownTask), errors.Is(err, perpetual.ErrUnknown):
		writeStatus(w, http.StatusNotFound, err.Error())
	default:
		writeStatus(w, http.StatusInternalServerError, err.Error())
	}
}
