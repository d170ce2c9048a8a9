package endtoend_test

import (
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/delegate-io/dlite/internal/testbed"
	secretsource "github.com/delegate-io/dlite/secrets/kubernetes"
)

// Rule S1: the provider reads secrets of a real cluster, and its errors contain the cluster's
// errors.
func TestSecretsOfARealCluster(t *testing.T) {
	t.Parallel()
	p := testbed.Kubernetes(t)
	namespace := p.NewNamespace(t)
	out, err := p.Kubectl(t, "-n", namespace, "create", "secret", "generic", "database", "--from-literal=password=visibly-fake")
	require.NoError(t, err, out)
	// The configuration refers to no files, because the client would watch them until it is
	// garbage-collected.
	config, err := clientcmd.LoadFromFile(p.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(config))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	source, err := secretsource.New(secretsource.Config{Kubeconfig: file, Namespaces: []string{namespace}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, source.Close()) })
	fetch := func(ref string) (string, error) {
		u, err := url.Parse(ref)
		require.NoError(t, err)
		return source.Fetch(t.Context(), u)
	}
	v, err := fetch("k8s://" + namespace + "/database#password")
	require.NoError(t, err)
	assert.Equal(t, "visibly-fake", v)
	_, err = fetch("k8s://" + namespace + "/none#password")
	require.ErrorContains(t, err, "there is no such secret")
	_, err = fetch("k8s://" + namespace + "/database#user")
	require.ErrorContains(t, err, `no key "user"`)
}
