package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/delegate-io/dlite/task"
)

// Poll implements [Client]. A manager without the extension answers at once, and
// Held is then false. The time-out of an attempt is the usual time-out plus the
// wait.
func (h *HTTP) Poll(ctx context.Context, delegateID string, q PollQuery) (*Pending, error) {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return nil, err
	}
	path, decode := "/api/agent/delegates/"+d+"/task-events", decodeEventsV1
	if h.protocol == V2 {
		path, decode = "/api/executions/"+d+"/runner-events", decodeEventsV2
	}
	query := h.query
	seconds := int64((q.Wait + time.Second - 1) / time.Second)
	if seconds > 0 {
		query += "&" + waitParam + "=" + strconv.FormatInt(seconds, 10)
		if q.Since != "" {
			query += "&" + sinceParam + "=" + url.QueryEscape(q.Since)
		}
	}
	c := h.newCall(http.MethodGet, path, query, nil)
	c.wait = max(0, time.Duration(seconds)*time.Second)
	var p *Pending
	c.read = func(header http.Header, body []byte) error {
		p = new(Pending)
		if cursor, ok := header[cursorHeader]; ok && seconds > 0 {
			p.Held, p.Cursor = true, cursor[0]
		}
		return decode(p, body)
	}
	if err := h.do(ctx, c); err != nil {
		return nil, err
	}
	return p, nil
}

// Acquire implements [Client]. The task gets the id of the event, because the
// manager expects the answer under that id. Acquire retries an answer that is
// incomplete or does not decode. If no attempt succeeds, the error is
// [ErrMalformed], also if later attempts failed in another way. The error contains
// no part of the task, because its payload may contain secrets.
func (h *HTTP) Acquire(ctx context.Context, delegateID string, e task.Event) (*task.Task, error) {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return nil, err
	}
	id, err := segment("task", e.TaskID)
	if err != nil {
		return nil, err
	}
	var c *call
	decode := decodeTaskV1
	if h.protocol == V2 {
		decode = decodeTaskV2
		dq := url.QueryEscape(delegateID)
		c = h.newCall(http.MethodGet, "/api/executions/"+id+"/request", "delegateId="+dq+"&"+h.query+
			"&delegateInstanceId="+dq+"&delegateName="+url.QueryEscape(h.name(delegateID)), nil)
	} else {
		c = h.newCall(http.MethodPut, "/api/agent/v2/delegates/"+d+"/tasks/"+id+"/acquire",
			h.query+"&delegateInstanceId="+url.QueryEscape(delegateID), nil)
	}
	c.grantsTask = true
	var t *task.Task
	c.read = func(_ http.Header, body []byte) (err error) {
		t, err = decode(body, e)
		return err
	}
	err = h.do(ctx, c)
	switch {
	case err == nil && t != nil:
		return t, nil
	case c.malformed != nil:
		// The manager granted the task to this delegate.
		return nil, c.malformed
	case err != nil:
		return nil, err
	}
	return nil, nil //nolint:nilnil // documented: another delegate has the task
}

func (h *HTTP) name(delegateID string) string {
	name, _ := h.names.Load(delegateID)
	s, _ := name.(string)
	return s
}

// Respond implements [Client]. In protocol v1 the task selects the legacy form or
// the runner's form; v2 has one form. A code that the form does not have travels as
// FAILED. The data then reports a TIMEOUT as its "command_execution_status", unless
// it has that member. [ErrGone] and [ErrConflict] mean that the manager does not
// want the answer, or accepted a previous attempt.
func (h *HTTP) Respond(ctx context.Context, delegateID string, t *task.Task, r *task.Response) error {
	d, err := segment("delegate", delegateID)
	if err != nil {
		return err
	}
	id, err := segment("task", t.ID)
	if err != nil {
		return err
	}
	var c *call
	dq := url.QueryEscape(delegateID)
	switch {
	case h.protocol == V2:
		c = h.newCall(http.MethodPost, "/api/executions/"+id+"/task-response", "runnerId="+dq+"&"+h.query,
			encodeRunner(t, r, codeV2(r.Code)))
	case t.RunnerResponse:
		c = h.newCall(http.MethodPost, "/api/executions/"+id+"/response", h.query+"&delegateId="+dq,
			encodeRunner(t, r, codeRunner(r.Code)))
	default:
		c = h.newCall(http.MethodPost, "/api/agent/v2/tasks/"+id+"/delegates/"+d, h.query, encodeLegacy(t, r))
	}
	c.attempts = 0 // until the context ends (rule C3)
	return h.do(ctx, c)
}
