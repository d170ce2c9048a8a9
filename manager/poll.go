package manager

import (
	"context"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/manager/internal/queue"
)

// cursorHeader is the header of a manager that supports held polls (rule C7).
const cursorHeader = "Dlite-Cursor"

// eventV1 and eventV2 announce a task in protocols v1 and v2.
type eventV1 struct {
	Account string `json:"accountId"`
	Task    string `json:"delegateTaskId"`
	Sync    bool   `json:"sync"`
	Type    string `json:"taskType"`
}

type eventV2 struct {
	Account string `json:"accountId"`
	Task    string `json:"taskId"`
	Runner  string `json:"runnerType"`
	Type    string `json:"taskType"`
}

func (m *Manager) pollV1(w http.ResponseWriter, r *http.Request) {
	l, ok := m.holdPoll(w, r)
	if !ok {
		return
	}
	events := make([]eventV1, 0, len(l.Events))
	for _, e := range l.Events {
		events = append(events, eventV1{Account: e.Account, Task: e.TaskID, Sync: e.Sync, Type: e.TaskType})
	}
	writeJSON(w, http.StatusOK, struct {
		Events  []eventV1 `json:"delegateTaskEvents"`
		Aborted []string  `json:"abortedTaskIds"`
	}{events, emptyIfNil(l.Aborted)})
}

func (m *Manager) pollV2(w http.ResponseWriter, r *http.Request) {
	l, ok := m.holdPoll(w, r)
	if !ok {
		return
	}
	events := make([]eventV2, 0, len(l.Events))
	for _, e := range l.Events {
		events = append(events, eventV2{Account: e.Account, Task: e.TaskID, Runner: e.RunnerType, Type: e.TaskType})
	}
	writeJSON(w, http.StatusOK, struct {
		Events  []eventV2 `json:"delegateRunnerEvents"`
		Aborted []string  `json:"abortedTaskIds"`
	}{events, emptyIfNil(l.Aborted)})
}

// holdPoll returns the list of tasks for a poll. If the poll has a wait, holdPoll
// waits until the list changes, unless the budget for that is used up. If it reports false, it has already answered the
// request, or the client has disconnected.
func (m *Manager) holdPoll(w http.ResponseWriter, r *http.Request) (queue.List, bool) {
	wait, given, ok := m.waitParam(w, r)
	if !ok {
		return queue.List{}, false
	}
	delegate, since := pathParam(r, "delegate"), r.URL.Query().Get("since")
	var over <-chan time.Time
	for {
		l, err := m.core.queue.List(account(r), delegate, since)
		if err != nil && m.journal.Sync(r.Context()) == nil { // the delegate may have registered with another manager a moment ago
			l, err = m.core.queue.List(account(r), delegate, since)
		}
		if err == nil && l.Unaware == given && over == nil {
			m.recordAwareness(r.Context(), account(r), delegate, given)
		}
		if err != nil {
			writeError(w, err)
			return queue.List{}, false
		}
		if over == nil && wait > 0 && !l.Fresh {
			release, err := m.budgets.take(account(r), amounts{budgetHolds: 1})
			if err != nil { // the delegate still gets its tasks, and without the header it pauses before its next poll
				return l, true
			}
			defer release()
			var stop func()
			over, stop = m.after(wait)
			defer stop()
		}
		if !l.Fresh && wait > 0 {
			select {
			case <-l.Changed:
				continue
			case <-r.Context().Done():
				return queue.List{}, false
			case <-over:
			case <-m.closing:
				given = false // without the header the client pauses before its next poll
			}
		}
		if given {
			w.Header().Set(cursorHeader, l.Cursor)
		}
		return l, true
	}
}

// recordAwareness records in the state whether a delegate knows our extension of the
// protocol, and so learns of aborts. It fails if the store does not answer. Then the
// list is still right, and the next poll tries again.
func (m *Manager) recordAwareness(ctx context.Context, account, delegate string, aware bool) {
	if _, err := m.applyCommand(ctx, &command{Account: account, Unaware: &switchCommand{ID: delegate, On: !aware}}); err != nil {
		m.cfg.Logger.Debug().Err(err).Str("account_id", account).Str("delegate_id", delegate).
			Msg("cannot record whether the delegate learns of aborts; its next poll tries again")
	}
}
