package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Daemons are the calls for daemon sets (rule G2). A [Client] may implement them; [HTTP]
// does, with the same paths for both protocols. They return the errors of a Client. A
// manager without daemon sets answers with [ErrGone].
type Daemons interface {
	// ReconcileDaemons reports the daemon sets that the delegate runs, and returns those
	// that it must run. It makes one attempt, because the next report follows soon. If
	// q.Wait is above zero, a manager with the extension holds the call for up to that
	// time, until the answer differs from the answer with the cursor q.Since.
	ReconcileDaemons(ctx context.Context, delegateID string, running []task.DaemonReport, q PollQuery) (*DaemonSets, error)

	// DaemonTasks returns the tasks of daemon sets that have the ids. A task that the
	// manager does not know is left out.
	DaemonTasks(ctx context.Context, delegateID string, ids []string) ([]*task.Task, error)
}

var _ Daemons = (*HTTP)(nil)

// DaemonSets is the answer to a report of daemon sets.
type DaemonSets struct {
	Sets []task.DaemonSet
	// Held reports that the manager supports Wait: the caller may call again at once.
	Held bool
	// Cursor is the Since of the next call. It is empty unless Held.
	Cursor string
}

// ReconcileDaemons implements [Daemons].
func (h *HTTP) ReconcileDaemons(ctx context.Context, delegateID string, running []task.DaemonReport, q PollQuery) (*DaemonSets, error) {
	if running == nil {
		running = []task.DaemonReport{}
	}
	query, seconds := h.query, int64((q.Wait+time.Second-1)/time.Second)
	if seconds > 0 {
		query += "&" + waitParam + "=" + strconv.FormatInt(seconds, 10)
		if q.Since != "" {
			query += "&" + sinceParam + "=" + url.QueryEscape(q.Since)
		}
	}
	c, err := h.newDaemonCall(delegateID, "reconcile", query, map[string]any{"data": running})
	if err != nil {
		return nil, err
	}
	c.attempts, c.wait = 1, max(0, time.Duration(seconds)*time.Second)
	out := &DaemonSets{}
	c.read = func(header http.Header, body []byte) error {
		if cursor, ok := header[cursorHeader]; ok && seconds > 0 {
			out.Held, out.Cursor = true, cursor[0]
		}
		if isNull(body) {
			return nil
		}
		var w struct {
			Data []task.DaemonSet `json:"data"`
		}
		if err := json.Unmarshal(body, &w); err != nil {
			return err
		}
		for i := range w.Data {
			if err := decodeSecrets(w.Data[i].Secrets); err != nil {
				return fmt.Errorf("daemon set %q: %w", w.Data[i].ID, err)
			}
		}
		out.Sets = w.Data
		return nil
	}
	if err := h.do(ctx, c); err != nil {
		return nil, err
	}
	return out, nil
}

// DaemonTasks implements [Daemons]. The tasks have the id of their request.
func (h *HTTP) DaemonTasks(ctx context.Context, delegateID string, ids []string) ([]*task.Task, error) {
	c, err := h.newDaemonCall(delegateID, "tasks", h.query, map[string]any{"task_ids": ids})
	if err != nil {
		return nil, err
	}
	c.grantsTask = true // errors must not contain a part of the tasks
	var out []*task.Task
	c.read = func(_ http.Header, body []byte) error {
		out = nil
		if isNull(body) {
			return nil
		}
		var w struct {
			Requests []*requestV2 `json:"requests"`
		}
		if err := json.Unmarshal(body, &w); err != nil {
			return err
		}
		for _, r := range w.Requests {
			if r == nil || r.Task == nil {
				continue
			}
			t := r.Task
			if err := decodePayload(t); err != nil {
				return err
			}
			if err := decodeSecrets(r.Secrets); err != nil {
				return err
			}
			t.Secrets = r.Secrets
			setDefault(&t.Account, r.Account)
			setDefault(&t.ID, r.ID)
			out = append(out, t)
		}
		return nil
	}
	if err := h.do(ctx, c); err != nil {
		return nil, err
	}
	return out, nil
}

func (h *HTTP) newDaemonCall(delegateID, action, query string, in any) (*call, error) {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encoding the daemon sets: %w", err)
	}
	return h.newCall(http.MethodPost, "/api/daemons/"+d+"/"+action, query, body), nil
}

// decodeSecrets decodes the payloads of secret tasks of v2.
func decodeSecrets(tasks []*task.Task) error {
	for i, s := range tasks {
		if s == nil {
			return fmt.Errorf("secret task %d is null", i)
		}
		if err := decodePayload(s); err != nil {
			return fmt.Errorf("secret task %d: %w", i, err)
		}
	}
	return nil
}
