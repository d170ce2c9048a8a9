package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/driver/agent"
)

// Rule T3: the resources of a stage are removed even if its log service is unreachable.
func TestADestroyRemovesResourcesBeforeItWaitsForLogs(t *testing.T) {
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
	assert.Contains(t, answer, "all resources are removed, but logs or reports are not sent")
	assert.Equal(t, 1, cleaned)
	close(back)
	for status != http.StatusOK {
		status, _ = f.post("/destroy", "")
	}
}
