package manager

import (
	"context"
	"net/http"
	"time"
)

func (m *Manager) postStage(w http.ResponseWriter, r *http.Request) {
	var req StageRequest
	if !m.read(w, r, &req) {
		return
	}
	s, existed, err := m.submitStage(extract(r), account(r), req)
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, accepted(existed), s)
}

// accepted is the status for something submitted.
func accepted(existed bool) int {
	if existed {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (m *Manager) listStages(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusOK, struct {
		Stages []Stage `json:"stages"`
	}{m.Stages(account(r))})
}

func (m *Manager) showStage(w http.ResponseWriter, r *http.Request) {
	id := param(r, "id")
	wait, _, ok := m.waiting(w, r)
	if !ok {
		return
	}
	s, done, err := m.stage(account(r), id)
	if err != nil {
		failWith(w, err)
		return
	}
	if m.hold(r.Context(), done, wait) {
		if s, err = m.Stage(account(r), id); err != nil {
			failWith(w, err)
			return
		}
	}
	answer(w, http.StatusOK, s)
}

func (m *Manager) showTask(w http.ResponseWriter, r *http.Request) {
	id := param(r, "id")
	wait, _, ok := m.waiting(w, r)
	if !ok {
		return
	}
	t, done, err := m.task(account(r), id)
	if err != nil {
		failWith(w, err)
		return
	}
	if m.hold(r.Context(), done, wait) {
		if t, err = m.Task(account(r), id); err != nil {
			failWith(w, err)
			return
		}
	}
	answer(w, http.StatusOK, t)
}

// hold waits for the end of something for a while, and tells whether it waited.
func (m *Manager) hold(ctx context.Context, done <-chan struct{}, wait time.Duration) bool {
	if wait <= 0 {
		return false
	}
	over, stop := m.after(wait)
	defer stop()
	select {
	case <-done:
	case <-over:
	case <-ctx.Done():
	case <-m.closing:
	}
	return true
}

func (m *Manager) abortStage(w http.ResponseWriter, r *http.Request) {
	s, err := m.AbortStage(r.Context(), account(r), param(r, "id"))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, s)
}

func (m *Manager) postTask(w http.ResponseWriter, r *http.Request) {
	var req TaskRequest
	if !m.read(w, r, &req) {
		return
	}
	t, existed, err := m.submitTask(extract(r), account(r), req)
	if err != nil {
		failWith(w, err)
		return
	}
	if req.Sync && m.holdTask(r.Context(), &t, account(r)) {
		existed = t.Status.Ended()
	}
	answer(w, accepted(existed), t)
}

// holdTask waits for a task's end on behalf of a synchronous submission.
func (m *Manager) holdTask(ctx context.Context, t *Task, account string) bool {
	_, done, err := m.task(account, t.ID)
	if err != nil {
		return false
	}
	m.hold(ctx, done, m.cfg.MaxSync)
	now, _, err := m.task(account, t.ID)
	if err == nil {
		*t = now
	}
	return err == nil
}

func (m *Manager) abortTask(w http.ResponseWriter, r *http.Request) {
	t, err := m.AbortTask(r.Context(), account(r), param(r, "id"))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, t)
}
