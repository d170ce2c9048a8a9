package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

// Limits returns an account's limits, ordered by group.
func (m *Manager) Limits(account string) []api.Limit {
	out := []api.Limit{}
	for _, l := range m.core.queue.Limits(account) {
		out = append(out, fromQueue(l))
	}
	return out
}

// SetLimit bounds how many stages of a group may run at a time. A Max of 0 removes
// the limit. A stage belongs to the group of its account, the group of its pipeline,
// and the groups of its labels. It waits while one of them is full, with the reason
// in its state. A lower limit stops no running stage. SetLimit fails with
// [ErrInvalid] and [ErrBudget].
func (m *Manager) SetLimit(ctx context.Context, account string, l api.Limit) error {
	if err := checkLimit(&l); err != nil {
		return err
	}
	if limits := m.core.queue.Limits(account); l.Max > 0 && len(limits) >= maxLimits &&
		!slices.ContainsFunc(limits, func(o queue.Limit) bool { return fromQueue(o).Group == l.Group }) {
		return fmt.Errorf("%w: the account has %d limits; remove some", ErrBudget, len(limits))
	}
	l.Used = 0
	_, err := m.applyCommand(ctx, &command{Account: account, SetLimit: &l})
	return err
}

// Drain turns draining of a delegate on or off. A draining delegate gets no new
// stages or single tasks, whatever its heartbeats say, and finishes those that it
// has. Drain fails with [ErrNotFound] if the account has no such delegate.
func (m *Manager) Drain(ctx context.Context, account, delegate string, on bool) error {
	_, err := m.applyCommand(ctx, &command{Account: account, Drain: &switchCommand{ID: delegate, On: on}})
	if errors.Is(err, queue.ErrUnknownDelegate) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Pause pauses or resumes accounts; without accounts, it does so for all. The
// delegates of a paused account get no stages or single tasks. The manager still
// accepts submissions, which wait. Running stages continue to their end.
func (m *Manager) Pause(ctx context.Context, on bool, accounts ...string) error {
	return m.pause(ctx, on, "", accounts)
}

func (m *Manager) pause(ctx context.Context, on bool, note string, accounts []string) error {
	if len(accounts) == 0 {
		accounts = m.Accounts()
		slices.Sort(accounts)
	}
	_, err := m.applyCommand(ctx, &command{Pause: &switchCommand{Accounts: accounts, On: on, Note: note}})
	return err
}

func (m *Manager) listLimits(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Limits []api.Limit `json:"limits"`
	}{m.Limits(account(r))})
}

func (m *Manager) putLimit(w http.ResponseWriter, r *http.Request) {
	var l api.Limit
	if !m.decodeStrict(w, r, &l, knownShapes().limit) {
		return
	}
	if err := m.SetLimit(r.Context(), account(r), l); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// drainHandler returns the handler of POST .../drain and .../resume.
func (m *Manager) drainHandler(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := m.Drain(r.Context(), account(r), pathParam(r, "id"), on); err != nil {
			writeError(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// checkNote checks the note of a pause.
func checkNote(note string) error {
	if err := checkSize("note", len(note), maxNote); err != nil {
		return err
	}
	if strings.ContainsFunc(note, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: note has a character that cannot be printed: it must be one line of text", ErrInvalid)
	}
	return nil
}

// maxNote bounds the note of a pause, in bytes.
const maxNote = 1 << 10

func (m *Manager) postPause(w http.ResponseWriter, r *http.Request) {
	var in api.PauseRequest // the body may be absent
	if r.ContentLength != 0 && !m.decodeStrict(w, r, &in, knownShapes().pause) {
		return
	}
	err := checkNote(in.Note)
	if err == nil {
		err = m.pause(r.Context(), true, in.Note, []string{account(r)})
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) postResume(w http.ResponseWriter, r *http.Request) {
	if err := m.Pause(r.Context(), false, account(r)); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) listSchedules(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Schedules []api.Schedule `json:"schedules"`
	}{m.Schedules(account(r))})
}

func (m *Manager) triggerSchedule(w http.ResponseWriter, r *http.Request) {
	id, err := m.TriggerSchedule(r.Context(), account(r), pathParam(r, "id"))
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusAccepted, struct {
		ID string `json:"id"`
	}{id})
}
