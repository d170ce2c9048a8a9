package manager

import (
	"cmp"
	"fmt"
	"net/http"
)

func (m *Manager) listSchedules(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, struct {
		Schedules []Schedule `json:"schedules"`
	}{m.Schedules(account(r))})
}

func (m *Manager) putSchedule(w http.ResponseWriter, r *http.Request) {
	var s Schedule
	if !m.read(w, r, &s) {
		return
	}
	id := param(r, "id")
	if cmp.Or(s.ID, id) != id {
		failWith(w, fmt.Errorf("%w: the path names schedule %q, the body %q", ErrInvalid, id, s.ID))
		return
	}
	s.ID = id
	s, err := m.SetSchedule(r.Context(), account(r), s)
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, s)
}

func (m *Manager) showSchedule(w http.ResponseWriter, r *http.Request) {
	s, err := m.Schedule(account(r), param(r, "id"))
	if err != nil && m.journal.Sync(r.Context()) == nil {
		s, err = m.Schedule(account(r), param(r, "id"))
	}
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, s)
}

func (m *Manager) deleteSchedule(w http.ResponseWriter, r *http.Request) {
	if err := m.DeleteSchedule(r.Context(), account(r), param(r, "id")); err != nil {
		failWith(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) triggerSchedule(w http.ResponseWriter, r *http.Request) {
	id, err := m.TriggerSchedule(r.Context(), account(r), param(r, "id"))
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusAccepted, struct {
		ID string `json:"id"`
	}{id})
}
