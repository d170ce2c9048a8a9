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

// logins is how many tokens there are besides the root tokens.
func logins(t *testing.T, v *testbed.VaultServer) (n int) {
	t.Helper()
	for _, a := range v.Do(t, "LIST", "auth/token/accessors", nil)["data"].(m)["keys"].([]any) {
		// Nothing when it has expired since.
		if data, ok := v.Ask(t, "POST", "auth/token/lookup-accessor", m{"accessor": a})["data"].(m); ok && data["path"] == "auth/approle/login" {
			n++
		}
	}
	return n
}

func TestAnAppRoleLogsInOnceForManyFetches(t *testing.T) {
	t.Parallel()
	v := world(t)
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.Equal(t, hush+"-2", must(t, p, "vault://secret/app#password")) })
	}
	wg.Wait()
	assert.Equal(t, 1, logins(t, v))

	// What authenticates is a secret of the task that it is used in.
	set := &secrets.Set{}
	_, err := p.Fetch(secrets.NewContext(t.Context(), set), mustParse(t, "vault://secret/app#password"))
	require.NoError(t, err)
	assert.Equal(t, 1, set.Len())
}

func TestAnAppRoleThatIsRefused(t *testing.T) {
	t.Parallel()
	v := world(t)
	role, id := credentials(t, v)
	for name, r := range map[string]vault.AppRole{
		"wrong secret id": {RoleID: role, SecretID: "not-a-real-secret-id"}, "wrong role": {RoleID: "not-a-role", SecretID: id},
		"no secret id": {RoleID: role}, "wrong mount": {Mount: "elsewhere", RoleID: role, SecretID: id},
	} {
		_, err := fetch(t, open(t, vault.Config{Address: v.Address, AppRole: &r}), "vault://kv1/app#password")
		require.ErrorIs(t, err, vault.ErrLogin, name)
		assert.NotContains(t, err.Error(), "not-a-real-secret-id", name)
	}
}

// A wrapped secret id is unwrapped once, kept for later logins, and one that
// somebody else has used is told from one that is merely wrong.
func TestAWrappedSecretID(t *testing.T) {
	t.Parallel()
	v := world(t)
	role, _ := credentials(t, v)
	wrap := func() string {
		return v.Do(t, "POST", "auth/approle/role/ci/secret-id", m{}, "X-Vault-Wrap-TTL", "60s")["wrap_info"].(m)["token"].(string)
	}
	file := filepath.Join(t.TempDir(), "wrapped")
	require.NoError(t, os.WriteFile(file, []byte(wrap()+"\n"), 0o600))
	cfg := vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretIDFile: file, Wrapped: true}}
	p := open(t, cfg)
	must(t, p, "vault://kv1/app#password")

	revokeLogins(t, v)
	must(t, p, "vault://kv1/app#password")
	assert.Equal(t, 1, logins(t, v), "the unwrapped secret id serves a second login")

	_, err := fetch(t, open(t, cfg), "vault://kv1/app#password")
	require.ErrorIs(t, err, vault.ErrLogin)
	require.ErrorContains(t, err, "has been intercepted")

	// Another token than one that wraps a secret id.
	other := v.Do(t, "POST", "sys/wrapping/wrap", m{"x": hush}, "X-Vault-Wrap-TTL", "60s")["wrap_info"].(m)["token"].(string)
	_, err = fetch(t, open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: other, Wrapped: true}}), "vault://kv1/app#password")
	require.ErrorContains(t, err, "stands for something else")
	assert.NotContains(t, err.Error(), hush)
}

func revokeLogins(t *testing.T, v *testbed.VaultServer) {
	t.Helper()
	v.Do(t, "PUT", "sys/leases/revoke-prefix/auth/approle/login", m{})
	require.Eventually(t, func() bool { return logins(t, v) == 0 }, waitMost, waitStep)
}

// The token expires in the middle of a stage: the next fetch logs in again.
func TestAnExpiredTokenIsReplaced(t *testing.T) {
	t.Parallel()
	v := world(t)
	v.Do(t, "POST", "auth/approle/role/ci", m{"token_policies": "ci", "token_ttl": "1s", "token_max_ttl": "1s"})
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	must(t, p, "vault://kv1/app#password")
	require.Equal(t, 1, logins(t, v))
	require.Eventually(t, func() bool { return logins(t, v) == 0 }, waitMost, waitStep)
	assert.Equal(t, hush+"-kv1", must(t, p, "vault://kv1/app#password"))
}

// Revoked from outside, which nobody tells the provider.
func TestARevokedTokenIsReplacedWhereThatIsPossible(t *testing.T) {
	t.Parallel()
	v := world(t)
	role, id := credentials(t, v)
	p := open(t, vault.Config{Address: v.Address, AppRole: &vault.AppRole{RoleID: role, SecretID: id}})
	must(t, p, "vault://kv1/app#password")
	revokeLogins(t, v)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { assert.Equal(t, hush+"-kv1", must(t, p, "vault://kv1/app#password")) })
	}
	wg.Wait()
	assert.Equal(t, 1, logins(t, v), "all use the new token")

	fixed := token(t, v, m{"policies": []string{"ci"}})
	p = open(t, vault.Config{Address: v.Address, Token: fixed})
	must(t, p, "vault://kv1/app#password")
	v.Do(t, "POST", "auth/token/revoke", m{"token": fixed})
	_, err := fetch(t, p, "vault://kv1/app#password")
	require.ErrorIs(t, err, vault.ErrLogin)
	require.ErrorContains(t, err, "has expired or was revoked")
	assert.NotContains(t, err.Error(), fixed)
}

// Who may not do something gets no new token for it.
func TestADenialIsNoReasonToLogInAgain(t *testing.T) {
	t.Parallel()
	v := world(t)
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

func TestATokenFileIsReadAgainWhenItsTokenIsRefused(t *testing.T) {
	t.Parallel()
	v := world(t)
	file := filepath.Join(t.TempDir(), "token")
	first := token(t, v, m{"policies": []string{"ci"}})
	require.NoError(t, os.WriteFile(file, []byte(first), 0o600))
	p := open(t, vault.Config{Address: v.Address, TokenFile: file})
	must(t, p, "vault://kv1/app#password")

	require.NoError(t, os.WriteFile(file, []byte(token(t, v, m{"policies": []string{"ci"}})), 0o600))
	v.Do(t, "POST", "auth/token/revoke", m{"token": first})
	must(t, p, "vault://kv1/app#password")

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

// A token is renewed while it is used, and by Keep while it is not.
func TestATokenIsRenewed(t *testing.T) {
	t.Parallel()
	v := world(t)
	for name, keep := range map[string]bool{"by use": false, "by Keep": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := token(t, v, m{"policies": []string{"ci"}, "ttl": "3s", "renewable": true})
			p := open(t, vault.Config{Address: v.Address, Token: own})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			must(t, p, "vault://kv1/app#password")
			if keep {
				wg.Go(func() { assert.NoError(t, p.Keep(ctx)) })
			}
			require.Eventually(t, func() bool {
				if !keep {
					must(t, p, "vault://kv1/app#password")
				}
				_, renewed := v.Do(t, "POST", "auth/token/lookup", m{"token": own})["data"].(m)["last_renewal"]
				return renewed
			}, waitMost, waitStep)
		})
	}
}
