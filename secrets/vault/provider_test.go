package vault_test

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/vault"
)

// A test waits at most maxWait for a change inside Vault.
const (
	maxWait      = 30 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Rule S1, with a token.
func TestFetchReadsBothVersionsOfTheEngine(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	p := open(t, vault.Config{Address: v.Address, Token: v.Token})
	for ref, want := range map[string]string{
		"vault://secret/app#password":           hush + "-2",
		"vault:///secret/app#password":          hush + "-2",
		"vault://secret/app?version=1#password": hush + "-1",
		"vault://kv1/app#n":                     "12345678901234567", // an engine of version 2 would round the number
		"vault://secret/app#o":                  `{"p":"<deep> & "}`,
		"vault://secret/app#o.p":                "<deep> & ",
		"vault://secret/one/deep":               hush,
		"vault://team/kv/x#v":                   hush + "-team",
		"vault://kv1/app#password":              hush + "-kv1",
	} {
		assert.Equal(t, want, mustFetch(t, p, ref), ref)
	}
}

func TestErrorsNameTheReasonAndShowNoValue(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	v.Do(t, "POST", "secret/delete/app", map[string]any{"versions": []int{1}})
	v.Do(t, "POST", "sys/policies/acl/little", map[string]any{"policy": `path "kv1/other" { capabilities = ["read"] }`})
	little := v.Do(t, "POST", "auth/token/create", map[string]any{"policies": []string{"little"}})["auth"].(map[string]any)["client_token"].(string)
	root := open(t, vault.Config{Address: v.Address, Token: v.Token})
	limited := open(t, vault.Config{Address: v.Address, Token: little})
	for _, tc := range []struct {
		p         *vault.Provider
		ref, want string
		missing   bool
	}{
		{root, "vault://secret/nothing#x", "no such secret", true},
		{root, "vault://kv1/nothing#x", "no such secret", true},
		{root, "vault://secret/app#nothing", `no field "nothing"`, true},
		{root, "vault://secret/app?version=1#password", "this version is deleted", true},
		{root, "vault://secret/app?version=9#password", "no such secret", true},
		{root, "vault://secret/app", "has 4 fields", false},
		{root, "vault://kv1/app?version=1#password", "has no versions", false},
		{root, "vault://secret/", "is a mount, not a secret", false},
		{root, "vault://sys/seal-status#sealed", `of type "system", not kv`, false},
		{root, "vault://nowhere/app#x", "vault answered 403", false},
		{limited, "vault://secret/app#password", "vault answered 403", false},
		{limited, "vault://kv1/app#password", "vault answered 403: 1 error occurred: * permission denied", false},
		{root, "vault://secret/../sys/raw#x", "must be of the form", false},
		{root, "vault://secret/app?version=x#password", "must be a positive number", false},
		{root, "vault://secret/app?namespace=x#password", "one parameter, version", false},
		{root, "vault:", "must be of the form", false},
	} {
		_, err := fetch(t, tc.p, tc.ref)
		require.ErrorContains(t, err, tc.want, tc.ref)
		assert.NotContains(t, err.Error(), hush, tc.ref)
		assert.NotContains(t, err.Error(), v.Token)
		assert.Equal(t, tc.missing, secretsNotFound(err), tc.ref)
		assert.NotContains(t, err.Error(), "\n", tc.ref)
	}
}

func TestNewRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]vault.Config{
		"nothing": {}, "no login": {Address: "http://127.0.0.1:1"}, "two logins": {Address: "http://127.0.0.1:1", Token: "a", TokenFile: "b"},
		"no role":        {Address: "http://127.0.0.1:1", AppRole: &vault.AppRole{}},
		"two secret ids": {Address: "http://127.0.0.1:1", AppRole: &vault.AppRole{RoleID: "r", SecretID: "a", SecretIDFile: "b"}},
		"no CA file":     {Address: "https://127.0.0.1:1", Token: "a", CAFile: "/does/not/exist"},
		"half a key":     {Address: "https://127.0.0.1:1", Token: "a", ClientCert: "/x"},
		"address":        {Address: "http://[::1", Token: "a"},
	} {
		_, err := vault.New(cfg)
		assert.ErrorContains(t, err, "vault: ", name)
	}
}

// The error names the state of the server.
func TestFetchFailsIfTheServerIsSealedOrStopped(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	p := open(t, vault.Config{Address: v.Address, Token: v.Token})
	mustFetch(t, p, "vault://kv1/app#password")

	v.Do(t, "POST", "sys/seal", nil)
	_, err := fetch(t, p, "vault://kv1/app#password")
	require.ErrorContains(t, err, "vault answered 503: Vault is sealed")

	v.Stop()
	_, err = fetch(t, p, "vault://kv1/app#password")
	require.ErrorContains(t, err, "connection refused")
	assert.NotContains(t, err.Error(), v.Token)
}

func TestFetchEndsWithItsContextIfTheServerHangs(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(block)
	p := open(t, vault.Config{Address: srv.URL, Token: "t"})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := p.Fetch(ctx, &url.URL{Scheme: "vault", Host: "secret", Path: "/app"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The provider sends the configured namespace and ignores the environment variables of
// the tools of Vault.
func TestProviderIgnoresTheEnvironmentVariablesOfVault(t *testing.T) {
	t.Setenv("VAULT_TOKEN", "from-the-environment")
	t.Setenv("VAULT_NAMESPACE", "from-the-environment")
	t.Setenv("VAULT_ADDR", "http://127.0.0.1:1")
	var namespaces, tokens []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespaces, tokens = append(namespaces, r.Header.Get("X-Vault-Namespace")), append(tokens, r.Header.Get("X-Vault-Token"))
		http.Error(w, `{"errors":["no"]}`, http.StatusNotFound)
	}))
	defer srv.Close()
	for _, ns := range []string{"", "team-a"} {
		p := open(t, vault.Config{Address: srv.URL, Token: "ours", Namespace: ns})
		_, err := fetch(t, p, "vault://secret/app#x")
		require.Error(t, err)
	}
	assert.Equal(t, []string{"", "team-a"}, namespaces)
	assert.Equal(t, []string{"ours", "ours"}, tokens)
}

// An answer that does not come from Vault may contain a secret.
func TestErrorsDoNotQuoteAnAnswerOfAnotherServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		body   string
	}{
		"page": {403, "<html>" + hush}, "other page": {418, "<html>" + hush}, "broken": {200, `{"data":{"x":"` + hush}, "text": {200, hush}, "huge": {200, `{"data":{"x":"` + strings.Repeat(hush, 1<<20)},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		}))
		p := open(t, vault.Config{Address: srv.URL, Token: "t"})
		_, err := fetch(t, p, "vault://secret/app#x")
		require.Error(t, err, name)
		assert.NotContains(t, err.Error(), "hush", name)
		srv.Close()
	}
}

func TestCAFileIsTrusted(t *testing.T) {
	t.Parallel()
	v := startVault(t)
	target, err := url.Parse(v.Address)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{DisableKeepAlives: true}
	srv := httptest.NewTLSServer(proxy)
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))

	p := open(t, vault.Config{Address: srv.URL, Token: v.Token, CAFile: ca})
	assert.Equal(t, hush+"-kv1", mustFetch(t, p, "vault://kv1/app#password"))
	_, err = fetch(t, open(t, vault.Config{Address: srv.URL, Token: v.Token}), "vault://kv1/app#password")
	assert.ErrorContains(t, err, "certificate")
}

func secretsNotFound(err error) bool {
	return strings.Contains(err.Error(), secrets.ErrNotFound.Error())
}
