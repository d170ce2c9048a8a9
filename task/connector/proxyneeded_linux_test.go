package connector

import (
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
)

const isolatedVariable = "DLITE_TEST_ISOLATED"

// In a network without a way out, the test says that a proxy may be needed. With the proxy it succeeds (rule G3).
func TestANetworkWithoutADirectWayNeedsAProxy(t *testing.T) {
	if os.Getenv(isolatedVariable) != "" {
		isolated(t)
		return
	}
	t.Parallel()
	if os.Getuid() != 0 {
		testbed.Unavailable(t, "namespaces", "only root can make a network namespace")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", `ip link set lo up && exec "$0" -test.run='^TestANetworkWithoutADirectWayNeedsAProxy$'`, os.Args[0])
	cmd.Env = append(os.Environ(), isolatedVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		testbed.Unavailable(t, "namespaces", "%s", out)
	}
	require.NoError(t, err, string(out))
}

// isolated runs in a network that has loopback only.
func isolated(t *testing.T) {
	ca := newAuthority(t, "The CA of a test")
	server := ca.serve(&x509.Certificate{DNSNames: []string{"192.0.2.7"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 7)}}, ok)
	c := connector{Kind: kindHTTP, Address: "https://192.0.2.7", Options: map[string]string{optionCA: ca.pem}}
	f := failed(t, try(t, c))
	assert.Equal(t, stepConnection, f.Name)
	assert.Equal(t, "there is no direct way from the delegate to 192.0.2.7:443", f.Message)
	assert.Contains(t, f.Remedy, "only through a proxy, set HTTPS_PROXY")
	u := proxy(t, server.Listener.Addr().String(), http.StatusOK)
	r := tryWith(t, &tester{base: &http.Transport{Proxy: http.ProxyURL(u)}, resolver: emptyResolver(t)}, c, time.Minute)
	assert.Equal(t, "proxy tls answer", steps(t, r))
}
