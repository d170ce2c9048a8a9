package agent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/driver/vm/agent"
)

// Whatever comes in, the answer is JSON, no call panics, and the agent goes on.
func FuzzRequests(f *testing.F) {
	f.Add("/setup", `{"network":{"id":"n"},"volumes":[null,{"temp":null}],"files":[null]}`)
	f.Add("/setup", `{"network":"n","log_config":{},"clone":{"auth":{}}}`)
	f.Add("/start_step", `{"id":"a","run":{"entrypoint":["x"]},"environment":null,"volumes":[null],"files":[null],"step_status":{}}`)
	f.Add("/start_step", `{"key":"k","auth":{},"outputs":[{}],"secrets":[""],"log_key":"k","log_config":{"url":":"}}`)
	f.Add("/stop_step", `{"id":"a","cause":"\u0000"}`)
	f.Add("/destroy", `[]`)
	f.Add("/suspend", `null`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if path == "/stream_output" || path == "/poll_step" || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " %?#\x00\r\n\t\x7f") {
			return // those wait, and what is no request does not get here
		}
		d := &brokenDriver{init: fine, execute: fine, cleanup: fine}
		a := agent.New(d, agent.Config{TempDir: t.TempDir(), ReportTimeout: 1, HTTPClient: &http.Client{Transport: http.NewFileTransport(http.Dir(t.TempDir()))}})
		h := a.Handler()
		for _, call := range [][2]string{{"/setup", `{}`}, {path, body}, {path, body}, {"/healthz", ""}} {
			method := http.MethodPost
			if call[0] == "/healthz" {
				method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+call[0], strings.NewReader(call[1]))
			if err != nil {
				return
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if !json.Valid(w.Body.Bytes()) && w.Body.Len() > 0 && w.Code != http.StatusMovedPermanently {
				t.Fatalf("%s %s: %d %q", call[0], call[1], w.Code, w.Body)
			}
			if w.Code == http.StatusInternalServerError && strings.Contains(w.Body.String(), "internal error") {
				t.Fatalf("%s %s panicked", call[0], call[1])
			}
		}
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
