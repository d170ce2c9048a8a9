package vault_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/vault"
)

type m = map[string]any

func token(t *testing.T, v *testbed.VaultServer, body m) string {
	t.Helper()
	return v.Do(t, "POST", "auth/token/create", body)["auth"].(m)["client_token"].(string)
}

// logins returns the number of valid tokens of AppRole logins.
func logins(t *testing.T, v *testbed.VaultServer) (n int) {
	t.Helper()
	for _, a := range v.Do(t, "LIST", "auth/token/accessors", nil)["data"].(m)["keys"].([]any) {
		// The answer has no data if the token has expired in between.
		if data, ok := v.Ask(t, "POST", "auth/token/lookup-accessor", m{"accessor": a})["data"].(m); ok && data["path"] == "auth/approle/login" {
			n++
		}
	}
	return n
}

func TestAppRoleLogsInOnceForManyFetches(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.Equal(t, hush+"-2", mustFetch(t, p, "vault://secret/app#password")) })
	}
	wg.Wait()
	assert.Equal(t, 1, logins(t, v))

	// The token is a secret of the task that uses it.
	set := &secrets.Set{}
	_, err := p.Fetch(secrets.NewContext(t.Context(), set), mustParse(t, "vault://secret/app#password"))
	require.NoError(t, err)
	assert.Equal(t, 1, set.Len())
}

func TestWrongAppRoleCredentialsAreALoginError(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, id := credentials(t, v)
	for name, r := range map[string]vault.AppRole{
		"wrong secret id": {RoleID: role, SecretID: "not-a-real-secret-id"}, "wrong role": {RoleID: "not-a-role", SecretID: id},
		"no secret id": {RoleID: role}, "wrong mount": {Mount: "elsewhere", RoleID: role, SecretID: id},
	} {
		_, err := fetch(t, open(t, vault.Config{Address: v.Address, AppRole: &r}), "vault://kv1/app#password")
		require.ErrorContains(t, err, "vault refused the login", name)
		assert.NotContains(t, err.Error(), "not-a-real-secret-id", name)
	}
}

// The provider unwraps a secret id once and uses it for later logins. If the wrapping
// token was used already, the error warns of an interception.
func TestWrappedSecretIDIsUnwrappedOnce(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, _ := credentials(t, v)
	wrap := func() string {
		return v.Do(t, "POST", "auth/approle/role/ci/secret-id", m{}, "X-Vault-Wrap-TTL", "60s")["wrap_info"].(m)["token"].(string)
	}
	file := filepath.Join(t.TempDir(), "wrapped")
	require.NoError(t, os.WriteFile(file, []byte(wrap()+"\n"), 0o600))
	cfg := vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretIDFile: file, Wrapped: true}}
	p := open(t, cfg)
	mustFetch(t, p, "vault://kv1/app#password")

	revokeLogins(t, v)
	mustFetch(t, p, "vault://kv1/app#password")
	assert.Equal(t, 1, logins(t, v), "the provider uses the unwrapped secret id for the second login")

	_, err := fetch(t, open(t, cfg), "vault://kv1/app#password")
	require.ErrorContains(t, err, "vault refused the login")
	require.ErrorContains(t, err, "has been intercepted")

	// This token wraps something else.
	other := v.Do(t, "POST", "sys/wrapping/wrap", m{"x": hush}, "X-Vault-Wrap-TTL", "60s")["wrap_info"].(m)["token"].(string)
	_, err = fetch(t, open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: other, Wrapped: true}}), "vault://kv1/app#password")
	require.ErrorContains(t, err, "contains no secret id")
	assert.NotContains(t, err.Error(), hush)
}

func revokeLogins(t *testing.T, v *testbed.VaultServer) {
	t.Helper()
	v.Do(t, "PUT", "sys/leases/revoke-prefix/auth/approle/login", m{})
	require.Eventually(t, func() bool { return logins(t, v) == 0 }, maxWait, pollInterval)
}

// If the token expires during a stage, the next fetch logs in again.
func TestExpiredTokenIsReplaced(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	v.Do(t, "POST", "auth/approle/role/ci", m{"token_policies": "ci", "token_ttl": "1s", "token_max_ttl": "1s"})
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	mustFetch(t, p, "vault://kv1/app#password")
	require.Equal(t, 1, logins(t, v))
	require.Eventually(t, func() bool { return logins(t, v) == 0 }, maxWait, pollInterval)
	assert.Equal(t, hush+"-kv1", mustFetch(t, p, "vault://kv1/app#password"))
}

// The provider learns only from a refused request that a token was revoked.
func TestRevokedTokenIsReplacedIfTheProviderCanLogIn(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	mustFetch(t, p, "vault://kv1/app#password")
	revokeLogins(t, v)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { assert.Equal(t, hush+"-kv1", mustFetch(t, p, "vault://kv1/app#password")) })
	}
	wg.Wait()
	assert.Equal(t, 1, logins(t, v), "all fetches use the new token")

	fixed := token(t, v, m{"policies": []string{"ci"}})
	p = open(t, vault.Config{Address: v.Address, Token: fixed})
	mustFetch(t, p, "vault://kv1/app#password")
	v.Do(t, "POST", "auth/token/revoke", m{"token": fixed})
	_, err := fetch(t, p, "vault://kv1/app#password")
	require.ErrorContains(t, err, "vault refused the login")
	require.ErrorContains(t, err, "has expired or was revoked")
	assert.NotContains(t, err.Error(), fixed)
}

// A new token would not have the missing permission either.
func TestMissingPermissionCausesNoLogin(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	for range 3 {
		_, err := fetch(t, p, "vault://cubbyhole/x#y")
		require.Error(t, err)
		_, err = fetch(t, p, "vault://nowhere/x#y")
		require.ErrorContains(t, err, "403")
	}
	assert.Equal(t, 1, logins(t, v))
}

func TestTokenFileIsReadAgainIfTheTokenIsRefused(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	file := filepath.Join(t.TempDir(), "token")
	first := token(t, v, m{"policies": []string{"ci"}})
	require.NoError(t, os.WriteFile(file, []byte(first), 0o600))
	p := open(t, vault.Config{Address: v.Address, TokenFile: file})
	mustFetch(t, p, "vault://kv1/app#password")

	require.NoError(t, os.WriteFile(file, []byte(token(t, v, m{"policies": []string{"ci"}})), 0o600))
	v.Do(t, "POST", "auth/token/revoke", m{"token": first})
	mustFetch(t, p, "vault://kv1/app#password")

	for content, want := range map[string]string{"  \n": "is empty", strings.Repeat("x", 5000): "is larger than 4096 bytes"} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := fetch(t, open(t, vault.Config{Address: v.Address, TokenFile: file}), "vault://kv1/app#password")
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "xxx")
	}
	require.NoError(t, os.Remove(file))
	_, err := fetch(t, open(t, vault.Config{Address: v.Address, TokenFile: file}), "vault://kv1/app#password")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Fetch renews the token while it is used, and RenewToken while it is not.
func TestTokenIsRenewed(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	for name, background := range map[string]bool{"by use": false, "by RenewToken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := token(t, v, m{"policies": []string{"ci"}, "ttl": "3s", "renewable": true})
			p := open(t, vault.Config{Address: v.Address, Token: own})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			mustFetch(t, p, "vault://kv1/app#password")
			if background {
				wg.Go(func() { p.RenewToken(ctx) })
			}
			require.Eventually(t, func() bool {
				if !background {
					mustFetch(t, p, "vault://kv1/app#password")
				}
				_, renewed := v.Do(t, "POST", "auth/token/lookup", m{"token": own})["data"].(m)["last_renewal"]
				return renewed
			}, maxWait, pollInterval)
		})
	}
}
