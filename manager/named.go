package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
)

// Schedules, connectors, perpetual tasks and daemon sets have their ids in the paths of their calls. The handlers below
// serve such calls.

// reply writes a value or an error.
func reply[T any](w http.ResponseWriter, v T, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// replyEmpty writes an answer without a body, or an error.
func replyEmpty(w http.ResponseWriter, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// decodeNamed decodes a request's body into v and sets its id to the id of the path. The body may omit the id, but must not
// have another one. If it reports false, it has already answered the request with an error.
func (m *Manager) decodeNamed(w http.ResponseWriter, r *http.Request, v any, id *string, what, pathID string, known submissionShape) bool {
	if !m.decodeStrict(w, r, v, known) {
		return false
	}
	if cmp.Or(*id, pathID) != pathID {
		writeError(w, fmt.Errorf("%w: the path names %s %q, the body %q", ErrInvalid, what, pathID, *id))
		return false
	}
	*id = pathID
	return true
}

// setHandler returns the handler of PUT: it answers with the value that set has stored.
func setHandler[T any](m *Manager, what string, known submissionShape, id func(*T) *string, set func(ctx context.Context, account string, v T) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var v T
		if !m.decodeNamed(w, r, &v, id(&v), what, pathParam(r, "id"), known) {
			return
		}
		v, err := set(r.Context(), account(r), v)
		reply(w, v, err)
	}
}

// showHandler returns the handler of GET. Another manager may have just accepted the object.
func showHandler[T any](m *Manager, get func(account, id string) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := synced(r.Context(), m, func() (T, error) { return get(account(r), pathParam(r, "id")) })
		reply(w, v, err)
	}
}

// deleteHandler returns the handler of DELETE.
func deleteHandler(remove func(ctx context.Context, account, id string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		replyEmpty(w, remove(r.Context(), account(r), pathParam(r, "id")))
	}
}
