package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/store"
)

func (s *Service) letters(ctx context.Context, account, after string) (api.LetterPage, error) {
	page := api.LetterPage{Letters: []api.Letter{}}
	from := int64(0)
	if after != "" {
		var err error
		if from, err = letterID(after); err != nil {
			return page, fmt.Errorf("%w: page is %q: use the next of the previous page", ErrInvalid, after)
		}
	}
	rows, err := s.store.DeadLetters(ctx, account, from, maxPage+1)
	if err != nil {
		return page, err
	}
	for _, d := range rows[:min(len(rows), maxPage)] {
		l := api.Letter{ID: strconv.FormatInt(d.ID, 10), Run: d.Run, Topic: d.Topic, Tries: d.Tries, Problem: d.Problem}
		var what struct{ Kind, Node string }
		if json.Unmarshal(d.Data, &what) == nil { // a letter that no version can read has neither
			l.Kind, l.Node = what.Kind, what.Node
		}
		page.Letters = append(page.Letters, l)
	}
	if len(rows) > maxPage {
		page.Next = page.Letters[maxPage-1].ID
	}
	return page, nil
}

func letterID(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("letter %q: %w", text, ErrNotFound)
	}
	return n, nil
}

// changeLetter delivers a dead letter again, or removes it.
func (s *Service) changeLetter(ctx context.Context, account, id string, change func(tx *store.Tx, account string, id int64) error) error {
	n, err := letterID(id)
	if err != nil {
		return err
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error { return change(tx, account, n) })
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("letter %s: %w", id, ErrNotFound)
	}
	return err
}

// routeLetters adds the API of dead letters.
func (a *handlers) routeLetters(r chi.Router) {
	r.Get("/api/letters", func(w http.ResponseWriter, r *http.Request) {
		if !knownParameters(w, r, "page") {
			return
		}
		page, err := a.service.letters(r.Context(), a.account(r), r.URL.Query().Get("page"))
		answer(w, http.StatusOK, page, err)
	})
	r = r.With(noParameters)
	r.Post("/api/letters/{id}/deliver", func(w http.ResponseWriter, r *http.Request) {
		deleted(w, a.service.changeLetter(r.Context(), a.account(r), chi.URLParam(r, "id"), (*store.Tx).Redeliver))
	})
	r.Delete("/api/letters/{id}", func(w http.ResponseWriter, r *http.Request) {
		deleted(w, a.service.changeLetter(r.Context(), a.account(r), chi.URLParam(r, "id"), (*store.Tx).Drop))
	})
}
