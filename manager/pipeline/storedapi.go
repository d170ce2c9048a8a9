package pipeline

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

// routeObjects adds the API of stored pipelines and triggers.
func (a *handlers) routeObjects(r chi.Router) {
	r.Get("/api/pipelines", a.pipelines)
	r.Get("/api/triggers", a.triggers)
	r = r.With(noParameters)
	r.Get("/api/pipelines/{id}", func(w http.ResponseWriter, r *http.Request) {
		p, err := a.service.StoredPipeline(r.Context(), a.account(r), chi.URLParam(r, "id"))
		answer(w, http.StatusOK, p, err)
	})
	r.Put("/api/pipelines/{id}", a.setPipeline)
	r.Delete("/api/pipelines/{id}", func(w http.ResponseWriter, r *http.Request) {
		deleted(w, a.service.DeletePipeline(r.Context(), a.account(r), chi.URLParam(r, "id")))
	})
	r.Get("/api/triggers/{id}", func(w http.ResponseWriter, r *http.Request) {
		t, err := a.service.Trigger(r.Context(), a.account(r), chi.URLParam(r, "id"))
		answer(w, http.StatusOK, t, err)
	})
	r.Put("/api/triggers/{id}", a.setTrigger)
	r.Delete("/api/triggers/{id}", func(w http.ResponseWriter, r *http.Request) {
		deleted(w, a.service.DeleteTrigger(r.Context(), a.account(r), chi.URLParam(r, "id")))
	})
}

func deleted(w http.ResponseWriter, err error) {
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// sameID completes the id in a body from the path. If it reports false, it has answered the request.
func sameID(w http.ResponseWriter, r *http.Request, id *string) bool {
	path := chi.URLParam(r, "id")
	if *id != "" && *id != path {
		writeStatus(w, http.StatusBadRequest, "id differs from the one in the path: leave it out", nil)
		return false
	}
	*id = path
	return true
}

func (a *handlers) setPipeline(w http.ResponseWriter, r *http.Request) {
	var p api.Pipeline
	if !decodeBody(w, r, &p) || !sameID(w, r, &p.ID) {
		return
	}
	out, err := a.service.SetPipeline(r.Context(), a.account(r), p)
	out.YAML, out.InputSets = "", nil // the caller has them
	answer(w, http.StatusOK, out, err)
}

func (a *handlers) setTrigger(w http.ResponseWriter, r *http.Request) {
	var t api.Trigger
	if !decodeBody(w, r, &t) || !sameID(w, r, &t.ID) {
		return
	}
	out, err := a.service.SetTrigger(r.Context(), a.account(r), t)
	answer(w, http.StatusOK, out, err)
}

func (a *handlers) pipelines(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "page") {
		return
	}
	page, next, err := a.service.StoredPipelines(r.Context(), a.account(r), r.URL.Query().Get("page"))
	answer(w, http.StatusOK, struct {
		Pipelines []api.Pipeline `json:"pipelines"`
		Next      string         `json:"next,omitempty"`
	}{page, next}, err)
}

func (a *handlers) triggers(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "page") {
		return
	}
	page, next, err := a.service.Triggers(r.Context(), a.account(r), r.URL.Query().Get("page"))
	answer(w, http.StatusOK, struct {
		Triggers []api.Trigger `json:"triggers"`
		Next     string        `json:"next,omitempty"`
	}{page, next}, err)
}
