package endtoend_test

import (
	"context"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/connector"
)

// connectorRig is a manager with one delegate that tests connectors. The map has its secrets.
func connectorRig(t *testing.T, values map[string]string) *manager.Manager {
	t.Helper()
	m, err := manager.New(manager.Config{Accounts: map[string]string{account: secret}})
	require.NoError(t, err)
	server := httptest.NewServer(m)
	t.Cleanup(func() {
		assert.NoError(t, m.Close())
		server.Close()
	})
	c, err := client.New(server.URL, account, secret)
	require.NoError(t, err)
	fetch := secrets.ProviderFunc(func(_ context.Context, ref *url.URL) (string, error) {
		if v, ok := values[ref.Host]; ok {
			return v, nil
		}
		return "", secrets.ErrNotFound
	})
	routes := router.New(connector.Routes(nil), router.WithMiddleware(
		routersecrets.Resolve(secrets.ResolverConfig{Providers: secrets.Providers{"test": fetch}})))
	p := poller.New(c, routes, poller.WithName("tester"))
	info, err := p.Register(t.Context())
	require.NoError(t, err)
	polled := make(chan error, 1)
	go func() { polled <- p.Poll(context.WithoutCancel(t.Context()), 4, info.ID, 50*time.Millisecond) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, p.Shutdown(ctx))
		assert.NoError(t, <-polled)
		c.CloseIdleConnections()
	})
	return m
}

// tryConnector keeps a connector and tests it. It returns the result and the last step as "name: message".
func tryConnector(t *testing.T, m *manager.Manager, c api.Connector) (api.ConnectorTest, string) {
	t.Helper()
	c.ID = "tried"
	_, err := m.SetConnector(t.Context(), account, c)
	require.NoError(t, err)
	r, err := m.TestConnector(t.Context(), account, c.ID, api.ConnectorTestRequest{Delegate: "tester", TimeoutMS: 60_000})
	require.NoError(t, err)
	require.NotEmpty(t, r.Steps)
	last := r.Steps[len(r.Steps)-1]
	return r, last.Name + ": " + last.Message
}

// A connector to a real cluster is tested through a manager and a delegate: the certificates of an administrator work, a
// token without a role and a wrong token have their own messages (rule G3).
func TestAConnectorToARealCluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kubernetes(t)
	namespace := cluster.NewNamespace(t)
	out, err := cluster.Kubectl(t, "-n", namespace, "create", "serviceaccount", "weak")
	require.NoError(t, err, out)
	weak, err := cluster.Kubectl(t, "-n", namespace, "create", "token", "weak")
	require.NoError(t, err, weak)
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	var admin *clientcmdapi.AuthInfo
	for _, a := range config.AuthInfos {
		admin = a
	}
	var server *clientcmdapi.Cluster
	for _, c := range config.Clusters {
		server = c
	}
	m := connectorRig(t, map[string]string{
		"cert": string(admin.ClientCertificateData), "key": string(admin.ClientKeyData), "weak": strings.TrimSpace(weak), "wrong": "visibly-fake-token",
	})
	c := api.Connector{Kind: "kubernetes", Address: server.Server, Options: map[string]string{
		"ca": string(server.CertificateAuthorityData), "namespace": namespace, "access": "write",
	}}
	c.Secrets = map[string]string{"client_cert": "test://cert", "client_key": "test://key"}
	r, last := tryConnector(t, m, c)
	assert.True(t, r.OK, "%+v", r)
	assert.Equal(t, "permission: the delegate may create pods in the namespace "+namespace, last)
	c.Secrets = map[string]string{"token": "test://weak"}
	_, last = tryConnector(t, m, c)
	assert.Equal(t, "permission: the cluster does not permit the token to create pods in the namespace "+namespace, last)
	c.Secrets = map[string]string{"token": "test://wrong"}
	_, last = tryConnector(t, m, c)
	assert.Contains(t, last, "rejects the token (401)")
	c.Secrets = map[string]string{"token": "test://none"}
	_, last = tryConnector(t, m, c)
	assert.Contains(t, last, "secrets: secret reference ${{secrets.test://none}}")
	c.Options = map[string]string{"namespace": namespace}
	c.Secrets = nil
	_, last = tryConnector(t, m, c)
	assert.Contains(t, last, "is signed by a CA that the delegate does not know")
}

// A connector to a bucket is tested against an S3-compatible server, with a write that leaves nothing (rule G3).
func TestAConnectorToABucket(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("caches"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	m := connectorRig(t, map[string]string{"access": "visibly-fake-access", "secret": "visibly-fake-secret"})
	c := api.Connector{
		Kind: "s3", Address: server.URL, Options: map[string]string{"bucket": "caches", "prefix": "ci", "access": "write"},
		Secrets: map[string]string{"access_key": "test://access", "secret_key": "test://secret"},
	}
	r, last := tryConnector(t, m, c)
	assert.True(t, r.OK, "%+v", r)
	assert.Equal(t, "permission: the delegate may write and remove objects in the bucket caches", last)
	list, err := backend.ListBucket("caches", nil, gofakes3.ListBucketPage{})
	require.NoError(t, err)
	assert.Empty(t, list.Contents)
	c.Options["bucket"] = "others"
	_, last = tryConnector(t, m, c)
	assert.Contains(t, last, "does not know the bucket others")
}
