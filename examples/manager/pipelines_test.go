package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The program keeps the secret of a webhook with the key in its directory.
func TestAWebhookNeedsItsSecretAndOtherCallsAToken(t *testing.T) {
	t.Parallel()
	accounts := map[string]string{"a": fakeSecret}
	p := start(t, &serverCommand{storeOptions: storeOptions{Store: "sqlite", DataDir: t.TempDir()}}, accounts, nil)
	token, err := issue(accounts, "a", time.Hour, "")
	require.NoError(t, err)
	const (
		yaml = `pipeline:\n  identifier: p\n  name: p\n  stages:\n    - stage: {identifier: s, name: s, type: CI, when: {pipelineStatus: Success, condition: \"false\"}, spec: ` +
			`{platform: {os: Linux, arch: Amd64}, runtime: {type: Docker, spec: {}}, execution: {steps: [{step: {identifier: x, name: x, type: Run, spec: {command: \"true\"}}}]}}}`
		hook = `{"kind":"webhook","provider":"custom","secret":"visibly-fake-webhook-secret","pipeline":"p"}`
	)
	for _, test := range []struct {
		method, path, body, header, value string
		status                            int
	}{
		{"PUT", "/api/pipelines/p?accountId=a", `{"yaml":"` + yaml + `"}`, "X-None", "", 401},
		{"PUT", "/api/pipelines/p?accountId=a", `{"yaml":"` + yaml + `"}`, "Authorization", "Bearer " + token, 200},
		{"PUT", "/api/triggers/t?accountId=a", hook, "X-None", "", 401},
		{"PUT", "/api/triggers/t?accountId=a", hook, "Authorization", "Bearer " + token, 200},
		{"GET", "/api/triggers?accountId=a", "", "Authorization", "Bearer " + token, 200},
		{"POST", "/api/hooks/a/t", "{}", "Authorization", "Bearer " + token, 401},
		{"POST", "/api/hooks/a/t", "{}", "X-Trigger-Token", "visibly-fake-webhook-secret", 202},
		{"GET", "/api/hooks/a/t", "", "X-Trigger-Token", "visibly-fake-webhook-secret", 401},
	} {
		status, body := p.call(test.method, test.path, test.body, test.header, test.value)
		assert.Equal(t, test.status, status, "%s %s: %s", test.method, test.path, body)
	}
	require.NoError(t, p.end())
}
