package azure_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/azure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hush  = "hush-hush"
	token = "not-a-real-token"
)

// login replaces the identity service of Azure, which issues tokens for a scope.
type login struct {
	token string

	mu     sync.Mutex
	asked  []policy.TokenRequestOptions // guarded by mu
	failed error
}

func (l *login) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, o)
	return azcore.AccessToken{Token: l.token, ExpiresOn: time.Now().Add(time.Hour)}, l.failed
}

// vaults answers as the REST reference of Key Vault describes it: first a challenge
// with the address for tokens, then the secret. The client reaches it by any host
// name.
func vaults(t *testing.T) *http.Client {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fail := func(status int, code string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"code": code, "message": "about " + hush}})
		}
		switch {
		case r.Header.Get("Authorization") == "":
			w.Header().Set("WWW-Authenticate", `Bearer authorization="https://login.example.test/tenant-1", resource="https://vault.azure.net"`)
			fail(401, "Unauthorized")
			return
		case r.Header.Get("Authorization") != "Bearer "+token:
			fail(401, "Unauthorized")
			return
		case r.URL.Query().Get("api-version") == "":
			fail(400, "BadParameter")
			return
		}
		value := ""
		switch r.Host + r.URL.Path {
		case "vault-1.vault.azure.net/secrets/database/", "vault-1.vault.azure.net/secrets/database":
			value = `{"password":"` + hush + `"}`
		case "vault-1.vault.azure.net/secrets/database/0a1b":
			value = "version 0a1b"
		case "vault-1.vault.azure.net/secrets/denied/", "vault-1.vault.azure.net/secrets/denied":
			fail(403, "Forbidden")
			return
		case "vault-1.vault.azure.net/secrets/garbage/", "vault-1.vault.azure.net/secrets/garbage":
			_, _ = io.WriteString(w, `{"value":"`+hush)
			return
		case "vault-1.vault.azure.net/secrets/hang/", "vault-1.vault.azure.net/secrets/hang":
			<-r.Context().Done()
			return
		default:
			fail(404, "SecretNotFound")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"value": value, "id": "https://" + r.Host + r.URL.Path})
	}))
	t.Cleanup(srv.Close)
	to := srv.Client().Transport
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Host = r.URL.Host
		r.URL.Host = srv.Listener.Addr().String()
		return to.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func open(t *testing.T, l *login) *azure.Provider {
	t.Helper()
	p, err := azure.New(azure.Config{Credential: l, HTTP: vaults(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func fetch(ctx context.Context, t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(ctx, u)
}

// Rule S1. The login has the scope of the vault's challenge.
func TestFetchReturnsSecrets(t *testing.T) {
	t.Parallel()
	l := &login{token: token}
	p := open(t, l)
	for ref, want := range map[string]string{
		"azure-kv://vault-1/database#password": hush, "azure-kv://vault-1/database": `{"password":"` + hush + `"}`,
		"azure-kv://vault-1/database?version=0a1b": "version 0a1b",
	} {
		v, err := fetch(t.Context(), t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
	require.NotEmpty(t, l.asked)
	assert.Equal(t, []string{"https://vault.azure.net/.default"}, l.asked[0].Scopes)
	assert.Equal(t, "tenant-1", l.asked[0].TenantID)
}

func TestErrorsNameTheReasonAndShowNoValue(t *testing.T) {
	t.Parallel()
	p := open(t, &login{token: token})
	for ref, want := range map[string]string{
		"azure-kv://vault-1/none": "there is no such secret", "azure-kv://vault-1/database#none": `no field "none"`,
		"azure-kv://vault-1/denied": "the service answered 403 Forbidden", "azure-kv://vault-1/garbage": "cannot be read",
		"azure-kv://vault-1": "must be of the form", "azure-kv://vault-1/a/b": "must be of the form", "azure-kv://evil.example/a": "must be of the form",
		"azure-kv://vault-1/a?x=1": "one parameter, version", "azure-kv://vault-1/a?version=..": "must be of the form",
	} {
		_, err := fetch(t.Context(), t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.NotContains(t, err.Error(), hush, ref)
	}
	_, err := fetch(t.Context(), t, open(t, &login{token: "wrong"}), "azure-kv://vault-1/database")
	require.ErrorContains(t, err, "the service answered 401")
	_, err = fetch(t.Context(), t, open(t, &login{failed: assert.AnError}), "azure-kv://vault-1/database")
	require.Error(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = fetch(ctx, t, p, "azure-kv://vault-1/hang")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The default credential looks for a login at the first request, not in New.
func TestNewNeedsNoLogin(t *testing.T) {
	t.Parallel()
	p, err := azure.New(azure.Config{})
	require.NoError(t, err)
	require.NoError(t, p.Close())
}
