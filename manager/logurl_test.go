package manager

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task/stage"
)

func TestAnAddressBelowAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, base string
		want      bool
	}{
		{"https://logs.example", "https://logs.example", true},
		{"https://logs.example/", "https://LOGS.example:443", true},
		{"https://logs.example/a/b", "https://logs.example/a", true},
		{"https://logs.example/ab", "https://logs.example/a", false},
		{"https://logs.example/a/../b", "https://logs.example/a", false},
		{"https://logs.example/a/%2e%2e/b", "https://logs.example/a", false},
		{"http://logs.example", "https://logs.example", false},
		{"https://logs.example:444", "https://logs.example", false},
		{"https://logs.example.evil.example", "https://logs.example", false},
		{"https://logs.example@evil.example", "https://logs.example", false},
		{"https://user@logs.example", "https://logs.example", false},
		{"https://logs.example?x=", "https://logs.example", false},
		{"https://evil.example#https://logs.example", "https://logs.example", false},
		{"https://logs.example", "", false},
		{"/logs", "/logs", false},
		{":", "https://logs.example", false},
	} {
		assert.Equal(t, c.want, isBelow(c.url, c.base), "%s below %s", c.url, c.base)
	}
}

// A submission names any address. The manager writes to none that the operator did not
// allow, also not for a stage from the store.
func TestASubmissionCannotMakeTheManagerCallAnAddress(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(inner.Close)
	open := func(change func(*Config)) *Manager {
		cfg := Config{
			Accounts: map[string]string{"a": "00000000000000000000000000000001"},
			Logs:     func(string, string, string) *stage.LogConfig { return &stage.LogConfig{URL: "http://own.invalid/logs"} },
		}
		change(&cfg)
		m, err := New(cfg)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, m.Close()) })
		return m
	}
	submit := func(m *Manager, url string) error {
		_, err := m.SubmitStage(t.Context(), "a", api.StageRequest{Init: []byte(`{"log_config":{"url":"` + url + `"},"log_key":"k"}`), Steps: []api.StepRequest{{}}})
		return err
	}
	m := open(func(*Config) {})
	err := submit(m, inner.URL)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "init.log_config.url")
	require.NoError(t, submit(m, "http://own.invalid/logs/"))
	require.ErrorIs(t, submit(open(func(c *Config) { c.Logs = nil }), inner.URL), ErrInvalid)
	require.NoError(t, submit(open(func(c *Config) { c.LogURLs = []string{inner.URL} }), inner.URL))
	assert.False(t, m.mayWriteLog("a", "s", &stage.LogConfig{URL: inner.URL}))
	assert.Zero(t, calls.Load())
}
