package manager

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Limits are an account's limits, by their groups.
func (m *Manager) Limits(account string) []Limit {
	out := []Limit{}
	for _, l := range m.core.queue.Limits(account) {
		out = append(out, fromQueue(l))
	}
	return out
}

// SetLimit bounds how many stages of a group delegates have at a time; 0 is no
// bound. A stage belongs to the group of its account, to that of its pipeline and
// to those of its labels, and runs only where none of them is full; until then it
// waits, and says why. Nothing is stopped for a lower limit. It fails with
// [ErrInvalid].
func (m *Manager) SetLimit(ctx context.Context, account string, l Limit) error {
	name, value, _ := strings.Cut(l.Group, ":")
	switch {
	case l.Group == wholeAccount, name == "pipeline" && value != "", name == "label" && strings.Contains(value, "="):
	default:
		return fmt.Errorf("%w: group is %q; it may be account, pipeline:NAME or label:NAME=VALUE", ErrInvalid, l.Group)
	}
	if l.Max < 0 {
		return fmt.Errorf("%w: max is negative", ErrInvalid)
	}
	l.Used = 0
	_, err := m.do(ctx, &command{Account: account, SetLimit: &l})
	return err
}

// Drain stops giving a delegate new stages and single tasks, whatever it says of
// itself, or goes on with it. What it has it finishes. It fails with
// [queue.ErrUnknownDelegate].
func (m *Manager) Drain(ctx context.Context, account, delegate string, on bool) error {
	_, err := m.do(ctx, &command{Account: account, Drain: &switchCommand{ID: delegate, On: on}})
	return err
}

// Pause stops giving stages and single tasks of accounts to delegates, or goes on
// with it; no account stands for all. Submissions are taken and wait, what runs
// goes on to its end.
func (m *Manager) Pause(ctx context.Context, on bool, accounts ...string) error {
	if len(accounts) == 0 {
		accounts = m.Accounts()
		slices.Sort(accounts)
	}
	_, err := m.do(ctx, &command{Pause: &switchCommand{Accounts: accounts, On: on}})
	return err
}

func (m *Manager) listLimits(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, struct {
		Limits []Limit `json:"limits"`
	}{m.Limits(account(r))})
}

func (m *Manager) putLimit(w http.ResponseWriter, r *http.Request) {
	var l Limit
	if !m.readStrict(w, r, &l, knownShapes().limit) {
		return
	}
	if err := m.SetLimit(r.Context(), account(r), l); err != nil {
		failWith(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// drain answers POST .../drain and .../resume.
func (m *Manager) drain(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := m.Drain(r.Context(), account(r), param(r, "id"), on); err != nil {
			failWith(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// pause answers POST /api/pause and /api/resume.
func (m *Manager) pause(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := m.Pause(r.Context(), on, account(r)); err != nil {
			failWith(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

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
	if !m.readStrict(w, r, &s, knownShapes().schedule) {
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
