package manager_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
)

// permission is the answer to a delegate that asks.
type permission struct {
	Version string
	Granted bool
	Reason  string
}

// Rule G4: the update of a fleet over HTTP, and through a restart of the manager.
func TestTheUpdateOfAFleet(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 10 {
		s.register(fmt.Sprint("d", i), dockerTypes)
	}
	ask := func(id, body string) (p permission) {
		s.ok("POST", "/api/agent/delegates/upgrade?accountId=acc", `{"id":"`+id+`","delegateName":"`+id+`","hostName":"h",`+body+`}`, &p)
		return p
	}
	require.Equal(t, permission{}, ask("d1", `"version":"v1.0.0"`), "no update: the delegate decides")
	var none api.Upgrade
	s.ok("GET", "/api/upgrade?accountId=acc", "", &none)
	require.Zero(t, none, "an answer without a version")
	require.Equal(t, 404, s.call("DELETE", "/api/upgrade?accountId=acc", "").status)
	for _, body := range []string{
		`{}`, `{"version":"1.2.3"}`, `{"version":"v1.2"}`, `{"version":"v1.2.3","share":"0"}`, `{"version":"v1.2.3","share":"101%"}`,
		`{"version":"v1.2.3","share":"+1"}`, `{"version":"v1.2.3","share":"x"}`, `{"version":"v1.2.3","max_failures":-1}`,
		`{"version":"v1.2.3","max_failures":1001}`, `{"version":"v1.2.3","return_ms":-5}`, `{"version":"v1.2.3","shares":"1"}`,
	} {
		require.Equal(t, 400, s.call("PUT", "/api/upgrade?accountId=acc", body).status, body)
	}
	var u api.Upgrade
	s.ok("PUT", "/api/upgrade?accountId=acc", `{"version":"v1.1.0","share":"20%"}`, &u)
	require.Equal(t, "running", u.State)
	require.Equal(t, permission{Version: "v1.1.0", Granted: true}, ask("d1", `"version":"v1.0.0"`))
	require.True(t, ask("d1", `"version":"v1.0.0"`).Granted, "the answer was lost")
	require.True(t, ask("d2", `"version":"v1.0.0"`).Granted)
	require.Equal(t, permission{Version: "v1.1.0", Reason: "2 delegates are away, and 20% may be"}, ask("d3", `"version":"v1.0.0"`))
	require.Equal(t, permission{Version: "v1.1.0"}, ask("d1", `"version":"v1.1.0"`), "it is back")
	require.True(t, ask("d3", `"version":"v1.0.0"`).Granted)
	ask("d3", `"version":"v1.0.0","failed":"v1.1.0","reason":"it did not register"`)
	require.Equal(t, "the update is stopped after 1 failures", ask("d4", `"version":"v1.0.0"`).Reason)
	s.ok("GET", "/api/upgrade?accountId=acc", "", &u)
	require.Equal(t, "stopped", u.State)
	require.Equal(t, 1, u.Returned)
	require.Len(t, u.Away, 1)
	require.Equal(t, "d3", u.Failed[0].Name)
	require.Equal(t, "it did not register", u.Failed[0].Reason)
	require.Equal(t, map[string]int{"": 10}, u.Versions)
	s.ok("PUT", "/api/upgrade?accountId=acc", `{"version":"v1.1.0","share":"2"}`, &u)
	require.True(t, ask("d3", `"version":"v1.0.0"`).Granted, "an operator has continued it")
	s.clock.Advance(31 * time.Minute)
	require.Equal(t, "the update is stopped after 2 failures", ask("d4", `"version":"v1.0.0"`).Reason, "two delegates did not return")
	for _, body := range []string{`{"version":"v1"}`, `{"id":"` + strings.Repeat("x", 300) + `","version":"v1"}`} {
		require.Equal(t, 400, s.call("POST", "/api/agent/delegates/upgrade?accountId=acc", body).status, body)
	}
	s.ok("DELETE", "/api/upgrade?accountId=acc", "", nil)
	require.Equal(t, permission{}, ask("d4", `"version":"v1.0.0"`))
}

// Rule G4: a manager refuses delegates that are older than it accepts, and says what to do.
func TestTheOldestVersionOfDelegates(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *manager.Config) { c.MinDelegateVersion = "v1.2.0" })
	for version, want := range map[string]int{
		"v1.1.9": 409, "v1.2.0-rc.1": 409, "v0.0.0": 409, "v1.2.0": 200, "v2.0.0": 200, "": 200, "devel": 200, "24.10.1": 200,
	} {
		r := s.call("POST", "/api/agent/delegates/register?accountId=acc", `{"delegateName":"d","version":"`+version+`"}`)
		assert.Equal(t, want, r.status, version)
		if want == 409 {
			assert.Contains(t, r.body, "the delegate has the version "+version+", and this manager accepts v1.2.0 and newer ones: upgrade the delegate")
		}
	}
	_, err := manager.New(manager.Config{Accounts: map[string]string{account: fakeSecret}, MinDelegateVersion: "1.2"})
	require.ErrorContains(t, err, "of the form v1.2.3")
}
