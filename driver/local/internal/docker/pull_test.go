package docker

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegistryCredentialsGoToTheirRegistryAlone(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://index.docker.io/v1/": "docker.io", "docker.io": "docker.io", "https://Registry.Example:5000/v2/": "registry.example:5000",
		"gcr.io": "gcr.io",
	} {
		require.Equal(t, want, registryHost(address))
	}
}

// Rule D3.
func TestPullPolicy(t *testing.T) {
	t.Parallel()
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for _, c := range []struct {
		policy, image string
		want          pullPolicy
	}{
		{"", "busybox", pullPreferred}, {"default", "busybox:latest", pullPreferred}, {"", "host:5000/x", pullPreferred},
		{"", "busybox:1", pullMissing}, {"", "busybox" + digest, pullMissing}, {"", "busybox:latest" + digest, pullMissing},
		{"Always", "busybox:1", pullAlways}, {"always", "busybox:1", pullAlways},
		{"IfNotPresent", "busybox", pullMissing}, {"Never", "busybox", pullNever},
	} {
		got, err := policyOf(c.policy, c.image)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s %s", c.policy, c.image)
	}
	_, err := policyOf("Sometimes", "busybox")
	require.ErrorContains(t, err, `"Sometimes"`)
}

// The engine reports errors inside the progress stream, with status 200.
func TestReadPullNoticesErrorsInTheStream(t *testing.T) {
	t.Parallel()
	status, err := readPull(strings.NewReader(`{"status":"Pulling from x","id":"1"}{"status":"Downloading","id":"l"}{"status":"Status: Image is up to date"}`), func(*pullMessage) {})
	require.NoError(t, err)
	require.Equal(t, "Status: Image is up to date", status)
	_, err = readPull(strings.NewReader(`{"status":"a"}{"errorDetail":{"message":"toomanyrequests"},"error":"toomanyrequests"}{"status":"b"}`), func(*pullMessage) {})
	require.EqualError(t, err, "toomanyrequests")
	_, err = readPull(strings.NewReader(`{"status":"a"}{"error":"no space left"}`), func(*pullMessage) {})
	require.EqualError(t, err, "no space left")
	_, err = readPull(strings.NewReader(`{"status":"a"}{"sta`), func(*pullMessage) {})
	require.ErrorContains(t, err, "read progress")
}
