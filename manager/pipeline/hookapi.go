package pipeline

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

const (
	// maxHookBody bounds the body of a webhook, in bytes.
	maxHookBody = 2 << 20
	// hookBodyTime bounds the time in which a body arrives.
	hookBodyTime = 10 * time.Second
	// maxHooks and maxHooksPerTrigger bound the bodies in memory. Calls of webhooks that do not exist share one place.
	maxHooks           = 64
	maxHooksPerTrigger = 8
)

// Hooks serves the calls of webhooks:
//
//	POST /api/hooks/{account}/{trigger}  -> 202 {"runs":[id]}; 200 {"repeated":[id]} or {"ignored":reason}
//
// The calls have no token: the provider proves the origin of each call with the secret of the trigger. Calls without a
// valid proof, and calls of triggers that do not exist, get the same answer 401.
func (s *Service) Hooks() http.Handler {
	h := &hooks{service: s, reading: map[string]int{}}
	r := chi.NewRouter()
	r.Post("/api/hooks/{account}/{trigger}", h.call)
	r.NotFound(unsigned)
	r.MethodNotAllowed(unsigned)
	return r
}

type hooks struct {
	service *Service

	mu      sync.Mutex
	total   int
	reading map[string]int // owner of a trigger to the calls whose body is in memory
}

func unsigned(w http.ResponseWriter, _ *http.Request) {
	writeStatus(w, http.StatusUnauthorized, errUnsigned.Error(), nil)
}

func (h *hooks) call(w http.ResponseWriter, r *http.Request) {
	account, id := chi.URLParam(r, "account"), chi.URLParam(r, "trigger")
	if !trigger.Signed(r.Header) || !runName.MatchString(id) || printable(account) != account {
		unsigned(w, r)
		return
	}
	release, err := h.enter(r, account, id)
	if err != nil {
		answerHook(w, api.HookAnswer{}, err)
		return
	}
	defer release()
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(hookBodyTime)) // not all servers can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHookBody))
	_ = control.SetReadDeadline(time.Time{})
	if err != nil {
		writeStatus(w, http.StatusRequestEntityTooLarge, "the body is too large, or did not arrive in time", nil)
		return
	}
	c, err := h.service.verify(r.Context(), account, id, r.Header, body)
	if err != nil {
		answerHook(w, api.HookAnswer{}, err)
		return
	}
	out, err := h.service.callHook(r.Context(), c)
	answerHook(w, out, err)
}

// enter takes a place for a body.
func (h *hooks) enter(r *http.Request, account, id string) (release func(), err error) {
	key := owner(account, id)
	if _, err := h.service.Trigger(r.Context(), account, id); errors.Is(err, ErrNotFound) {
		key = ""
	} else if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.total >= maxHooks || h.reading[key] >= maxHooksPerTrigger {
		return nil, errTooMany
	}
	h.total++
	h.reading[key]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.total--
		if h.reading[key]--; h.reading[key] == 0 {
			delete(h.reading, key)
		}
	}, nil
}

func answerHook(w http.ResponseWriter, out api.HookAnswer, err error) {
	switch {
	case err == nil && len(out.Runs) > 0:
		writeJSON(w, http.StatusAccepted, out)
	case err == nil:
		writeJSON(w, http.StatusOK, out)
	case errors.Is(err, errUnsigned):
		writeStatus(w, http.StatusUnauthorized, errUnsigned.Error(), nil)
	case errors.Is(err, errTooMany), errors.Is(err, ErrBudget):
		w.Header().Set("Retry-After", "60")
		writeStatus(w, http.StatusTooManyRequests, "too many calls", nil)
	case errors.Is(err, ErrInvalid):
		writeStatus(w, http.StatusUnprocessableEntity, err.Error(), nil)
	default: // the database, of which an unsigned caller must not learn more
		w.Header().Set("Retry-After", "1")
		writeStatus(w, http.StatusServiceUnavailable, "the service is not available", nil)
	}
}
