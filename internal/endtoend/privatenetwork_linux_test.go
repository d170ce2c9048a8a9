package endtoend_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// privateCA is an authority that no system trusts, with one certificate for 127.0.0.1.
type privateCA struct {
	dir       string // contains only the certificate of the authority
	roots     *x509.CertPool
	cert, key string // files
	server    tls.Certificate
	root      *x509.Certificate
	rootKey   *ecdsa.PrivateKey
}

func newPrivateCA(t *testing.T) *privateCA {
	t.Helper()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Private Test CA"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootKey := newECKey(t)
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	require.NoError(t, err)
	files := t.TempDir()
	ca := &privateCA{
		dir: t.TempDir(), roots: x509.NewCertPool(), root: root, rootKey: rootKey,
		cert: filepath.Join(files, "cert.pem"), key: filepath.Join(files, "key.pem"),
	}
	rootPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
	require.NoError(t, os.WriteFile(filepath.Join(ca.dir, "ca.pem"), rootPEM, 0o600))
	ca.roots.AppendCertsFromPEM(rootPEM)
	ca.issue(t)
	ca.server, err = tls.LoadX509KeyPair(ca.cert, ca.key)
	require.NoError(t, err)
	return ca
}

func newECKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return k
}

// issue writes a new certificate and its key.
func (ca *privateCA) issue(t *testing.T) {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	key := newECKey(t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca.root, &key.PublicKey, ca.rootKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(ca.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(ca.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
}

// tunnels is a proxy with credentials. It records the destinations.
type tunnels struct {
	url  string
	mu   sync.Mutex
	seen map[string]int
}

const proxyPassword = "not-a-real-proxy-password"

func newTunnels(t *testing.T) *tunnels {
	t.Helper()
	p := &tunnels{seen: map[string]int{}}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("corp:"+proxyPassword))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		p.mu.Lock()
		p.seen[r.Host]++
		p.mu.Unlock()
		far, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		near, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			_ = far.Close()
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		var both sync.WaitGroup
		for a, b := range map[net.Conn]net.Conn{near: far, far: near} {
			both.Go(func() {
				_, _ = io.Copy(a, b)
				_ = a.Close()
			})
		}
		both.Wait()
	}))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

func (p *tunnels) count(url string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[strings.TrimPrefix(url, "https://")]
}

// Rule C5: manager, log service and git server have certificates of a private authority, and are
// behind a proxy with credentials. A stage clones a repository, its log arrives, and its cleanup
// ends at once. Steps do not see the password of the proxy.
func TestAStageRunsBehindAPrivateAuthorityAndAProxy(t *testing.T) {
	t.Parallel()
	needTool(t, "git")
	ca, proxy := newPrivateCA(t), newTunnels(t)
	git := startForge(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.server}, MinVersion: tls.VersionTLS12}
		s.StartTLS()
	})
	git.add(t, "ci", "testdata/realuse")

	r := newRig(t, rigConfig{cert: ca.cert, key: ca.key, roots: ca.roots, directLogs: true})
	host, port, _ := strings.Cut(strings.TrimPrefix(proxy.url, "http://"), ":")
	settings, err := os.OpenFile(r.config(), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = fmt.Fprintf(settings, "CERTS_DIR=%s\nPROXY_HOST=%s\nPROXY_PORT=%s\nPROXY_USER=corp\nPROXY_PASSWORD=%s\n", ca.dir, host, port, proxyPassword)
	require.NoError(t, err)
	require.NoError(t, settings.Close())
	r.startDelegate(t)

	st := r.run(t, "private", fmt.Sprintf(`{
		"init": {"clone": {"url": "%s/ci.git", "branch": "next", "auth": {"username": "ci", "password": "%s"}}},
		"steps": [{"id": "show", "data": {"run": {"entrypoint": ["sh", "-c"], "commands": ["git log --format=%%s; env; cat .git/config"]}}}]
	}`, git.URL, git.password))
	require.Equal(t, api.Success, st.Status, st.Error)
	log := r.awaitLog(t, st.Steps[0].LogKey)
	assert.Contains(t, log, "Add the sources\n")
	assert.NotContains(t, log, proxyPassword)
	assert.NotContains(t, log, "GIT_SSL_CAINFO")
	assert.Less(t, st.Cleanup.EndedAt.Sub(st.Cleanup.StartedAt), 30*time.Second)
	assert.Positive(t, proxy.count(git.URL), "the clone")
	assert.Positive(t, proxy.count(r.address), "the manager and its log service")
}
