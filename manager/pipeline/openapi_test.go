package pipeline

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/internal/openapitest"
)

func TestTheDescriptionIsThatOfTheService(t *testing.T) {
	t.Parallel()
	m, err := manager.New(manager.Config{Accounts: map[string]string{"acme": "00000000000000000000000000000001"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	s, err := New(t.Context(), Config{Manager: m, Database: filepath.Join(t.TempDir(), "pipelines.db")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	h := s.Handler(func(next http.Handler) http.Handler { return next }, func(*http.Request) string { return "acme" })
	hooks := s.Hooks()
	d := openapitest.Load(t)
	d.CheckRoutes(t, h.(chi.Routes), nil, "runs")
	d.CheckRoutes(t, hooks.(chi.Routes), nil, "webhooks")

	d.CheckParameters(t, h, "?accountId=acme", regexp.MustCompile(`this call knows (.*)"}`), nil, "runs")
	d.Answers(t, h, "?accountId=acme", func(r *http.Request) {
		if r.URL.Path == "/api/run-events" { // which has no end
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			*r = *r.WithContext(ctx)
		}
	}, "runs")
	d.Answers(t, hooks, "", nil, "webhooks")
	// The manager authenticates: it answers 401 and 403.
	assert.ElementsMatch(t, append(openapitest.UsedStatuses(t, "."), http.StatusForbidden), d.Statuses("runs", "webhooks"))
}
