package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// The step store of the group cache has the name cache_store, which Kubernetes refuses as an
// alias of a pod.
func TestANameWithAnUnderscoreAlsoWorksAsItIs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"db":             {"db"},
		"cache_store":    {"cache-store", "cache_store"},
		"Cache_Store":    {"cache-store", "cache_store"},
		"www.internal":   {"www.internal"},
		"Web server":     {"web-server"},
		"a_b\n1.2.3.4 x": {"a-b-1.2.3.4-x"},
	} {
		assert.Equal(t, want, hostNames(name), name)
	}
}

func TestAPodHasEachAddressOnceInItsAliases(t *testing.T) {
	t.Parallel()
	list := addAliases(nil, []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"a"}}})
	list = addAliases(list, []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"b", "c"}}, {IP: "10.0.0.1", Hostnames: []string{"d"}}})
	assert.Equal(t, []corev1.HostAlias{{IP: "127.0.0.1", Hostnames: []string{"a", "b", "c"}}, {IP: "10.0.0.1", Hostnames: []string{"d"}}}, list)
}
