package manager

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/openapitest"
)

const describedSecret = "00000000000000000000000000000001"

// described returns a manager, and a function that adds a token of the account acme to a request.
func described(t *testing.T) (*Manager, func(*http.Request)) {
	t.Helper()
	m, err := New(Config{Accounts: map[string]string{"acme": describedSecret, "other": describedSecret}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	secret, err := token.ParseSecret(describedSecret)
	require.NoError(t, err)
	text, err := secret.Issue("acme", time.Now(), time.Hour)
	require.NoError(t, err)
	return m, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+text) }
}

func TestTheDescriptionHasTheRoutesAndTypesOfTheManager(t *testing.T) {
	t.Parallel()
	m, _ := described(t)
	d := openapitest.Load(t)
	// docs/protocol.md describes the calls of delegates.
	d.CheckRoutes(t, m.routes().(chi.Routes), []string{"/api/agent/", "/api/executions/", "/api/daemons/"}, "manager", "open")
	d.CheckRequest(t, "TaskRequest", struct { // the manager's members, and the members of a task that every delegate has
		control

		ID   string `json:"id"`
		Type string `json:"type"`
		Data any    `json:"data"`
	}{})
}

func TestTheDescriptionHasTheParametersAndErrorsOfTheManager(t *testing.T) {
	t.Parallel()
	m, authorize := described(t)
	d := openapitest.Load(t)
	d.CheckParameters(t, m, "?accountId=acme", regexp.MustCompile(`this call has (.*)"}`), authorize, "manager")
	for want, query := range map[int]string{http.StatusBadRequest: "", http.StatusForbidden: "?accountId=other"} {
		for call, w := range d.Answers(t, m, query, authorize, "manager") {
			assert.Equal(t, want, w.Code, call)
		}
	}
	for call, w := range d.Answers(t, m, "?accountId=acme", nil, "manager") {
		assert.Equal(t, http.StatusUnauthorized, w.Code, call)
	}
	assert.Equal(t, openapitest.UsedStatuses(t, "."), d.Statuses("manager"))

	require.NoError(t, m.Close())
	d.Answers(t, m, "?accountId=acme", authorize, "manager") // unknown ids, and a manager that is closing
}

func TestTheManagerServesTheDescription(t *testing.T) {
	t.Parallel()
	m, _ := described(t)
	d := openapitest.Load(t)
	w := d.Answers(t, m, "", nil, "open")["GET /api/openapi.json"]
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assert.Equal(t, string(api.OpenAPI()), w.Body.String())
}
