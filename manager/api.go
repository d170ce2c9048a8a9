package manager

import (
	"context"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/manager/api"
)

func (m *Manager) postStage(w http.ResponseWriter, r *http.Request) {
	var req api.StageRequest
	if !m.decodeStrict(w, r, &req, knownShapes().stage) {
		return
	}
	if err := checkNotEmpty(&req); err != nil {
		writeError(w, err)
		return
	}
	s, existed, err := m.submitStage(traceContext(r), account(r), req)
	processed(r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, submitStatus(existed), s)
}

// submitStatus returns the HTTP status of a submission.
func submitStatus(existed bool) int {
	if existed {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (m *Manager) showStage(w http.ResponseWriter, r *http.Request) {
	id := pathParam(r, "id")
	wait, _, ok := m.waitParam(w, r)
	if !ok {
		return
	}
	m.setLastEvent(w, r)
	s, err := m.syncedStage(r.Context(), account(r), id)
	if err == nil && wait > 0 && !s.Ended() {
		release, ok := m.hold(w, r, budgetHolds)
		if !ok {
			return
		}
		defer release()
		ctx, cancel := m.holdContext(r.Context(), wait)
		defer cancel()
		if now, _ := m.WaitStage(ctx, account(r), id); now.ID != "" { // otherwise the manager has forgotten the stage
			s = now
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, s)
}

func (m *Manager) showTask(w http.ResponseWriter, r *http.Request) {
	id := pathParam(r, "id")
	wait, _, ok := m.waitParam(w, r)
	if !ok {
		return
	}
	t, err := m.syncedTask(r.Context(), account(r), id)
	if err == nil && wait > 0 && !t.Ended() {
		release, ok := m.hold(w, r, budgetHolds)
		if !ok {
			return
		}
		defer release()
		ctx, cancel := m.holdContext(r.Context(), wait)
		defer cancel()
		if now, _ := m.WaitTask(ctx, account(r), id); now.ID != "" { // otherwise the manager has forgotten the task
			t = now
		}
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, t)
}

// holdContext returns a context that ends when the call may not be held any longer.
func (m *Manager) holdContext(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	over, stop := m.after(wait)
	go func() {
		defer stop()
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (m *Manager) postTask(w http.ResponseWriter, r *http.Request) {
	var req TaskRequest
	if !m.decodeStrict(w, r, &req, knownShapes().task) {
		return
	}
	if req.Sync {
		release, ok := m.hold(w, r, budgetHolds)
		if !ok {
			return
		}
		defer release()
	}
	t, existed, err := m.submitTask(traceContext(r), account(r), req)
	processed(r)
	if err != nil {
		writeError(w, err)
		return
	}
	if req.Sync {
		ctx, cancel := m.holdContext(r.Context(), m.cfg.MaxSync)
		defer cancel()
		if now, _ := m.WaitTask(ctx, account(r), t.ID); now.ID != "" { // otherwise the manager has forgotten the task
			t = now
		}
		existed = t.Status.Ended()
	}
	writeJSON(w, submitStatus(existed), t)
}

func (m *Manager) abortTask(w http.ResponseWriter, r *http.Request) {
	t, err := m.AbortTask(r.Context(), account(r), pathParam(r, "id"))
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, t)
}
