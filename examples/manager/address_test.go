package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/examples/internal/serving"
)

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// file has the authority's certificate, and pool is the same for a client.
	file string
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		SubjectKeyId: []byte(rand.Text()), // tells two authorities apart
	}
	a.file, _ = a.issue("ca.pem", a.cert)
	text, err := os.ReadFile(a.file)
	require.NoError(t, err)
	require.True(t, a.pool.AppendCertsFromPEM(text))
	return a
}

// issue writes a certificate for 127.0.0.1, and its key.
func (a *authority) issue(name string, c *x509.Certificate) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	if a.key == nil {
		a.key = key
	}
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	certFile, keyFile = filepath.Join(a.dir, name), filepath.Join(a.dir, name+".key")
	require.NoError(a.t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

// leaf is the template of a certificate with a purpose.
func leaf(purpose x509.ExtKeyUsage, until time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until),
		ExtKeyUsage: []x509.ExtKeyUsage{purpose},
	}
}

// Rule C5: each address of LISTEN asks its clients for certificates as its mode says.
func TestEachAddressHasItsOwnModeOfClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.issue("server.pem", leaf(x509.ExtKeyUsageServerAuth, time.Hour))
	p := start(t, &serverCommand{
		Options: serving.Options{Listen: "127.0.0.1:0=required, 127.0.0.1:0=optional, 127.0.0.1:0", TLSCert: cert, TLSKey: key, ClientCA: ca.file},
	}, map[string]string{"a": fakeSecret}, nil)
	shown := regexp.MustCompile(`(?m)^(?:serving|listening) at (https://\S+?)(?:, client certificates (\w+))?$`).
		FindAllStringSubmatch("serving at "+p.url, -1)
	require.Len(t, shown, 4, p.url)
	assert.Equal(t, []string{"required", "optional", ""}, []string{shown[1][2], shown[2][2], shown[3][2]})
	assert.Equal(t, shown[2][1], shown[0][1], "the first address that requires no certificate is the default of PUBLIC_URL")

	clients := map[string]func() (string, string){
		"none":          nil,
		"valid":         func() (string, string) { return ca.issue("valid.pem", leaf(x509.ExtKeyUsageClientAuth, time.Hour)) },
		"expired":       func() (string, string) { return ca.issue("expired.pem", leaf(x509.ExtKeyUsageClientAuth, -time.Hour)) },
		"of a server":   func() (string, string) { return cert, key },
		"of another CA": func() (string, string) { return other.issue("other.pem", leaf(x509.ExtKeyUsageClientAuth, time.Hour)) },
	}
	accepts := map[string][]bool{"none": {false, true, true}, "valid": {true, true, true}}
	for name, files := range clients {
		config := &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12}
		if files != nil {
			pair, err := tls.LoadX509KeyPair(files())
			require.NoError(t, err)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &pair, nil // also if the server's authorities did not issue it
			}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		for i, address := range shown[1:] {
			want := i == 2 || accepts[name] != nil && accepts[name][i]
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address[1]+"/healthz", nil)
			require.NoError(t, err)
			resp, err := transport.RoundTrip(req)
			if !want {
				require.Error(t, err, "certificate %s at %s", name, address[2])
				continue
			}
			require.NoError(t, err, "certificate %s at %s", name, address[2])
			assert.Equal(t, 2, resp.ProtoMajor)
			require.NoError(t, resp.Body.Close())
		}
		transport.CloseIdleConnections()
	}
	old := &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11} //nolint:gosec // must be refused
	_, err := (&tls.Dialer{Config: old}).DialContext(t.Context(), "tcp", shown[3][1][len("https://"):])
	require.ErrorContains(t, err, "protocol version")
	require.NoError(t, p.end())
}

// Rule C5: new connections get a renewed certificate without a restart, and the previous one while the files are not valid.
func TestARenewedCertificateNeedsNoRestart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue("server.pem", leaf(x509.ExtKeyUsageServerAuth, time.Hour))
	p := start(t, &serverCommand{Options: serving.Options{Listen: "127.0.0.1:0", TLSCert: cert, TLSKey: key}}, map[string]string{"a": fakeSecret}, nil)
	serial := func() int64 {
		d := &tls.Dialer{Config: &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12}}
		conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 2, serial())
	for _, next := range []int64{3, 4} {
		renewed := leaf(x509.ExtKeyUsageServerAuth, time.Hour)
		renewed.SerialNumber = big.NewInt(next)
		_, _ = ca.issue("server.pem", renewed)
		require.Equal(t, next, serial())
		require.NoError(t, os.WriteFile(key, []byte("half"), 0o600))
		require.Equal(t, next, serial())
	}
	require.NoError(t, p.end())
}

// A delegate of the SDK with a client certificate works at an address that requires one, and submitters use another
// address. Without the certificate it cannot register.
func TestADelegateWithAClientCertificateRunsATask(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue("server.pem", leaf(x509.ExtKeyUsageServerAuth, time.Hour))
	p := start(t, &serverCommand{
		Options: serving.Options{Listen: "127.0.0.1:0=required,127.0.0.1:0", TLSCert: cert, TLSKey: key, ClientCA: ca.file},
	}, map[string]string{"a": fakeSecret}, &tls.Config{RootCAs: ca.pool, MinVersion: tls.VersionTLS12})
	shown := regexp.MustCompile(`https://[0-9.:]+`).FindAllString(p.url, -1)
	require.Len(t, shown, 3)
	trust := t.TempDir()
	require.NoError(t, os.Link(ca.file, filepath.Join(trust, "ca.pem")))

	p.url = shown[1]
	c, err := client.New(p.url, "a", fakeSecret, client.WithCACertsDir(trust), client.WithRetries(client.Retries{Attempts: 1}))
	require.NoError(t, err)
	_, err = c.Register(t.Context(), &client.Registration{DelegateName: "d"})
	require.Error(t, err)
	require.Regexp(t, "certificate|http2: client conn could not be established", err.Error(), "net/http may close the connection before it reads the reason")
	c.CloseIdleConnections()

	clientCert, clientKey := ca.issue("client.pem", leaf(x509.ExtKeyUsageClientAuth, time.Hour))
	p.delegate("a", fakeSecret, client.WithCACertsDir(trust), client.WithClientCert(clientCert, clientKey))
	p.url = shown[2]
	status, body := p.call(http.MethodPost, "/api/tasks?accountId=a", `{"type":"echo","data":"hi","sync":true}`, "Authorization", "Bearer "+tokenFor(t))
	assert.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, `"data":"hi"`)
}

// Rule X3: an error of LISTEN or of its files names the setting, and the program takes no port.
func TestTheModesOfAddressesAreCheckedBeforeAPortIsTaken(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.issue("server.pem", leaf(x509.ExtKeyUsageServerAuth, time.Hour))
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	at := taken.Addr().String()
	for want, c := range map[string]*serverCommand{
		"LISTEN: it has no address":                             {Options: serving.Options{Listen: " , "}},
		"=requird: only =required or =optional":                 {Options: serving.Options{Listen: at + "=requird", TLSCert: cert, TLSKey: key, ClientCA: ca.file}},
		"set TLS_CERT_FILE and TLS_KEY_FILE":                    {Options: serving.Options{Listen: at + "=required", ClientCA: ca.file}},
		"set CLIENT_CA_FILE to a PEM file":                      {Options: serving.Options{Listen: at + "=optional", TLSCert: cert, TLSKey: key}},
		"CLIENT_CA_FILE: no address of LISTEN asks":             {Options: serving.Options{Listen: at, TLSCert: cert, TLSKey: key, ClientCA: ca.file}},
		"TLS_CERT_FILE and TLS_KEY_FILE: set both":              {Options: serving.Options{Listen: at, TLSCert: cert}},
		"TLS_CERT_FILE: open":                                   {Options: serving.Options{Listen: at, TLSCert: cert + "x", TLSKey: key}},
		"CLIENT_CA_FILE: open":                                  {Options: serving.Options{Listen: at + "=required", TLSCert: cert, TLSKey: key, ClientCA: ca.file + "x"}},
		"CLIENT_CA_FILE: " + key + " has no certificate in PEM": {Options: serving.Options{Listen: at + "=required", TLSCert: cert, TLSKey: key, ClientCA: key}},
	} {
		c.LogLevel, c.Store = "error", "memory"
		err := serve(context.Background(), c, map[string]string{"a": fakeSecret}, io.Discard)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "bind")
	}
}

// If one address is taken, the program frees the other ones.
func TestTheProgramTakesAllAddressesOrNone(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, err = (&serving.Options{Listen: "127.0.0.1:0," + taken.Addr().String()}).Open(t.Context(), zerolog.Nop())
	require.ErrorContains(t, err, "LISTEN: ")
	require.NoError(t, taken.Close())
}
