package queuetest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"

	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager"
)

// reply records a manager's answer to a call without a network.
type reply struct {
	status  int
	header  http.Header
	body    bytes.Buffer
	flushed func()
}

func (r *reply) Header() http.Header         { return r.header }
func (r *reply) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *reply) WriteHeader(status int)      { r.status = status }

// Flush ends the stream when the manager has sent all events.
func (r *reply) Flush() {
	if r.flushed != nil {
		r.flushed()
	}
}

// call makes a call with an account's token.
func (h *history) call(m *manager.Manager, a *account, method, path, body string) *reply {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	r := &reply{header: http.Header{}, status: http.StatusOK, flushed: cancel}
	if strings.Contains(path, "?") {
		path += "&"
	} else {
		path += "?"
	}
	req := httptest.NewRequestWithContext(ctx, method, path+"accountId="+a.name, strings.NewReader(body))
	req.Header.Set("Authorization", "Delegate "+a.token)
	m.ServeHTTP(r, req)
	return r
}

// ask makes a call to a random manager.
func (h *history) ask(t *rapid.T, method, path, body string) *reply {
	return h.call(h.some(t), h.in, method, path, body)
}

// expect makes a call that must have a given status.
func (h *history) expect(t *rapid.T, status int, method, path, body string) *reply {
	t.Helper()
	r := h.ask(t, method, path, body)
	if r.status != status {
		t.Fatalf("%s %s %s: %d %s, and not %d", method, path, body, r.status, r.body.String(), status)
	}
	return r
}

// into decodes the answer.
func (r *reply) into(t *rapid.T, v any) {
	t.Helper()
	if err := json.Unmarshal(r.body.Bytes(), v); err != nil {
		t.Fatalf("%v in %s", err, r.body.String())
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(b)
}
