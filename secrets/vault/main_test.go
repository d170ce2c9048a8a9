package vault_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ secrets.Provider = (*vault.Provider)(nil)

// hush is part of every secret of the tests. No error may show it.
const hush = "hush-hush"

// startVault starts a Vault with secret/ (KV 2), kv1/ (KV 1), team/kv/ (KV 2), an
// AppRole "ci" that may read all of them, and some secrets.
func startVault(t *testing.T) *testbed.VaultServer {
	t.Helper()
	v := testbed.Vault(t)
	type m = map[string]any
	for mount, version := range map[string]string{"secret": "2", "kv1": "1", "team/kv": "2"} {
		v.Do(t, "POST", "sys/mounts/"+mount, m{"type": "kv", "options": m{"version": version}})
	}
	v.Do(t, "POST", "sys/auth/approle", m{"type": "approle"})
	v.Do(t, "PUT", "sys/policies/acl/ci", m{"policy": `path "secret/*" { capabilities = ["read","create","update","delete"] }
path "kv1/*" { capabilities = ["read","create","update","delete"] }
path "team/kv/*" { capabilities = ["read"] }`})
	v.Do(t, "POST", "auth/approle/role/ci", m{"token_policies": "ci"})
	put := func(path string, data any) {
		require.Eventually(t, func() bool { // Vault prepares a new mount of version 2 in the background
			return v.Try(t, "POST", path, data) == 200
		}, maxWait, pollInterval, path)
	}
	put("secret/data/app", m{"data": m{"password": hush + "-1", "user": "app"}})
	put("secret/data/app", m{"data": m{"password": hush + "-2", "user": "app", "n": 12345678901234567, "o": m{"p": "<deep> & "}}})
	put("secret/data/one/deep", m{"data": m{"any": hush}})
	put("team/kv/data/x", m{"data": m{"v": hush + "-team"}})
	v.Do(t, "POST", "kv1/app", m{"password": hush + "-kv1", "user": "app", "n": 12345678901234567})
	return v
}

// credentials returns the id of the role ci and a new secret id.
func credentials(t *testing.T, v *testbed.VaultServer) (roleID, secretID string) {
	t.Helper()
	role := v.Do(t, "GET", "auth/approle/role/ci/role-id", nil)["data"].(map[string]any)
	id := v.Do(t, "POST", "auth/approle/role/ci/secret-id", map[string]any{})["data"].(map[string]any)
	return role["role_id"].(string), id["secret_id"].(string)
}

func open(t *testing.T, cfg vault.Config) *vault.Provider {
	t.Helper()
	p, err := vault.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func fetch(t *testing.T, p *vault.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(t.Context(), u)
}

// mustFetch fetches a value that must exist.
func mustFetch(t *testing.T, p *vault.Provider, ref string) string {
	t.Helper()
	v, err := fetch(t, p, ref)
	require.NoError(t, err, ref)
	return v
}
