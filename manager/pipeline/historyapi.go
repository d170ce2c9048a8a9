package pipeline

import (
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
)

func (a *handlers) endedStage(w http.ResponseWriter, r *http.Request) {
	id := chi.URLParam(r, "id")
	if r.URL.RawPath != "" { // chi leaves its escapes in place
		if plain, err := url.PathUnescape(id); err == nil {
			id = plain
		}
	}
	st, err := a.service.EndedStage(r.Context(), a.account(r), id)
	answer(w, http.StatusOK, st, err)
}

func (a *handlers) outcomes(w http.ResponseWriter, r *http.Request) {
	if !knownParameters(w, r, "of", "pipeline", "after", "before") {
		return
	}
	q := r.URL.Query()
	var after, before time.Time
	if err := timesOf(q, time.DateOnly, "a day such as 2026-01-31", &after, &before); err != nil {
		answer(w, 0, nil, err)
		return
	}
	days, err := a.service.Outcomes(r.Context(), a.account(r), q.Get("of"), q.Get("pipeline"), after, before)
	answer(w, http.StatusOK, map[string][]api.Outcomes{"days": days}, err)
}
