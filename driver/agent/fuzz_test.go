package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
)

// FuzzRequests checks that the agent answers every request with JSON, does not panic, and
// continues to serve.
func FuzzRequests(f *testing.F) {
	f.Add("/setup", `{"network":{"id":"n"},"volumes":[null,{"temp":null}],"files":[null]}`)
	f.Add("/setup", `{"network":"n","log_config":{},"clone":{"auth":{}}}`)
	f.Add("/start_step", `{"id":"a","run":{"entrypoint":["x"]},"environment":null,"volumes":[null],"files":[null],"step_status":{}}`)
	f.Add("/start_step", `{"key":"k","auth":{},"outputs":[{}],"secrets":[""],"log_key":"k","log_config":{"url":":"}}`)
	f.Add("/poll_step", `{"id":"a","dlite":true}`)
	f.Add("/stream_output", `{"id":"a","offset":9223372036854775807}`)
	f.Add("/stream_output", `{"id":"\ud800","offset":-1}`)
	f.Add("/stop_step", `{"id":"a","cause":"\u0000"}`)
	f.Add("/destroy", `[]`)
	f.Add("/suspend", `null`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " %?#\x00\r\n\t\x7f") {
			return // other input is not a valid request
		}
		d := &brokenDriver{init: fine, execute: fine, cleanup: fine}
		a := agent.New(d, agent.Config{TempDir: t.TempDir(), ReportTimeout: 1, HTTPClient: &http.Client{Transport: http.NewFileTransport(http.Dir(t.TempDir()))}})
		h := a.Handler()
		for _, call := range [][2]string{{"/setup", `{}`}, {"/start_step", `{"id":"a"}`}, {path, body}, {path, body}, {"/healthz", ""}} {
			method := http.MethodPost
			if call[0] == "/healthz" {
				method = http.MethodGet
			}
			limit := patience
			if path == "/stream_output" {
				limit = time.Millisecond // it waits for the start of a step
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			req, err := http.NewRequestWithContext(ctx, method, "http://agent"+call[0], strings.NewReader(call[1]))
			if err != nil {
				cancel()
				return
			}
			w := httptest.NewRecorder()
			serve(h, w, req)
			cancel()
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

// serve runs a call. An interrupted response counts as an answer.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		p := recover()
		if err, ok := p.(error); p != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
}
