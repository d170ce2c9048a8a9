package client_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
)

func TestGitTrustsTheCertificatesOfTheClientAndOfTheSystem(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	system := filepath.Join(t.TempDir(), "system.pem")
	require.NoError(t, os.WriteFile(system, []byte("the system's"), 0o600))
	t.Setenv("GIT_SSL_CAINFO", system)
	certs, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.pem"), ca, 0o600))
	c, err := client.New("https://manager.example", "a", fakeSecret, client.WithCACertsDir(certs))
	require.NoError(t, err)

	env, err := c.GitEnvironment(dir)
	require.NoError(t, err)
	assert.Equal(t, env["GIT_SSL_CAINFO"], env["GIT_PROXY_SSL_CAINFO"])
	bundle, err := os.ReadFile(env["GIT_SSL_CAINFO"])
	require.NoError(t, err)
	assert.Equal(t, "the system's\n"+string(ca), string(bundle))
	assert.NotContains(t, env, "https_proxy", "git inherits the variables of the delegate")
}

func TestGitUsesTheProxyOfTheClient(t *testing.T) {
	t.Parallel()
	c, err := client.New("https://manager.example", "a", fakeSecret, client.WithProxy(client.ProxyConfig{
		Host: "proxy.example", Port: 3128, User: "user", Password: "fake p@ss", NoProxy: "internal.example, *.corp.example,10.0.0.0/8",
	}))
	require.NoError(t, err)
	env, err := c.GitEnvironment(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"http_proxy", "HTTPS_PROXY", "https_proxy"} {
		assert.Equal(t, "http://user:fake%20p%40ss@proxy.example:3128", env[name])
	}
	assert.Equal(t, "internal.example,.corp.example,10.0.0.0/8", env["no_proxy"])
	assert.Equal(t, env["no_proxy"], env["NO_PROXY"])
	assert.NotContains(t, env, "GIT_SSL_CAINFO")
}

func TestGitGetsNoVariablesWithoutOptions(t *testing.T) {
	t.Parallel()
	c, err := client.New("https://manager.example", "a", fakeSecret)
	require.NoError(t, err)
	env, err := c.GitEnvironment(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, env)
}
