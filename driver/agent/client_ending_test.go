package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/task/stage"
)

// Rules S5 and L2: an agent of this package gets no token, and writes logs to the caller's
// log only.
func TestOurAgentGetsNoLogServiceAndNoManager(t *testing.T) {
	t.Parallel()
	req := &StartStepRequest{Step: stage.Step{
		ID: "a", LogKey: "k", LogConfig: &stage.LogConfig{URL: "http://127.0.0.1:1", Token: "fake-token"},
		StepStatus: &stage.StepStatus{Token: "fake-token"},
	}}
	sent := newSession(t.Context(), nil, req, nil, true).req
	assert.Nil(t, sent.LogConfig)
	assert.Empty(t, sent.LogKey)
	assert.Nil(t, sent.StepStatus)
	assert.NotNil(t, req.LogConfig, "the caller's request does not change")
}
