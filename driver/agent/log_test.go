package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/manager/logservice"
)

// T3: what a stage has made goes also while its log service is away.
func TestADestroyRemovesThingsBeforeItWaitsForLogs(t *testing.T) {
	t.Parallel()
	back := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-back }))
	defer server.Close()
	cleaned := 0
	d := &brokenDriver{init: fine, execute: fine, cleanup: func(context.Context) error { cleaned++; return nil }}
	f := newAgentOn(t, d, agent.Config{CleanupTimeout: 200 * time.Millisecond})
	f.setup(fmt.Sprintf(`,"log_config":{"account_id":"acme","url":%q,"indirect_upload":true}`, server.URL))
	f.ok("/start_step", step("x", "true", `,"log_key":"k"`))
	status, answer := f.post("/destroy", "")
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, answer, "all is removed, but logs or reports could not be sent")
	assert.Equal(t, 1, cleaned)
	close(back)
	for status != http.StatusOK {
		status, _ = f.post("/destroy", "")
	}
}

// PROTOCOL 5, S3, L2: where a driver leaves a step's log to the agent, it is all in the
// log service when the poll is answered, and the secrets of setup and step are masked.
func TestAStepsLogGoesToTheLogServiceMasked(t *testing.T) {
	t.Parallel()
	logs, err := logservice.New(logservice.Config{Authorize: logservice.Tokens(map[string]string{"acme": "visibly-fake-token"})})
	require.NoError(t, err)
	defer func() { assert.NoError(t, logs.Close()) }()
	server := httptest.NewServer(logs)
	defer server.Close()
	config := fmt.Sprintf(`,"log_config":{"account_id":"acme","url":%q,"token":"visibly-fake-token","indirect_upload":true}`, server.URL)
	f := newAgent(t, agent.Config{})
	f.setup(config + `,"secrets":["of-the-setup"]`)
	archived := func(key string) (status int, text string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/blob?accountID=acme&key="+key, nil)
		require.NoError(t, err)
		req.Header.Set("X-Harness-Token", "visibly-fake-token")
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close() //nolint:errcheck // read to its end
		for lines := json.NewDecoder(resp.Body); ; {
			var line struct{ Out string }
			if lines.Decode(&line) != nil {
				return resp.StatusCode, text
			}
			text += line.Out
		}
	}
	// Nobody waits for it: it is there with the answer.
	logged := func(key string) string {
		t.Helper()
		status, text := archived(key)
		assert.Equal(t, http.StatusOK, status, key)
		return text
	}
	f.ok("/start_step", step("one", `for s in setup step; do printf %s of-; echo the-$s; done; printf 'no newline'`,
		`,"log_key":"stage/one","secrets":["of-the-step"]`))
	assert.JSONEq(t, `{"exited":true}`, f.poll("one"))
	assert.Equal(t, "******\n******\nno newline", logged("stage/one"))
	// Who reads it here masks it there.
	assert.Contains(t, f.ok("/stream_output", `{"id":"one"}`), "of-the-setup\n")

	f.ok("/start_step", step("failed", `true`, `,"log_key":"failed","working_dir":"/no/of-the-setup"`))
	f.poll("failed")
	assert.Contains(t, logged("failed"), `"/no/******" is no folder`, "people look into the log")

	f.ok("/start_step", step("drone", `echo x`, `,"log_key":"drone","log_drone":true`))
	f.poll("drone")
	f.ok("/start_step", step("service", `echo up; sleep 600`, `,"log_key":"service","detach":true`+config))
	f.stream(`{"id":"service"}`).until(t, "up\n")
	f.ok("/destroy", "")
	assert.Equal(t, "up\n", logged("service"), "a detached step's log is closed by the destroy")
	status, _ := archived("drone")
	assert.Equal(t, http.StatusNotFound, status, "the driver takes care of that one")
}
