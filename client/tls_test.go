package client_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
)

// authority is a CA for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	require.NoError(t, err)
	return n
}

// leaf returns a certificate for 127.0.0.1 or for a client, and its key, as PEM.
func (a *authority) leaf(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// serveTLS starts a manager with a certificate of the authority. Its answer to a
// registration is the name in the client certificate.
func serveTLS(t *testing.T, ca *authority, change func(*tls.Config)) *rawServer {
	t.Helper()
	cert, key := ca.leaf(t, "manager")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	s := newRawServer(func(w http.ResponseWriter, r *http.Request, _ int) {
		name := "none"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		answer(w, 200, `{"resource":{"delegateId":"`+name+`"}}`)
	})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if change != nil {
		change(s.TLS)
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	// Replaced whole, as a careful operator does it.
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func register(t *testing.T, c *client.HTTP) (string, error) {
	t.Helper()
	d, err := c.Register(within(t), &client.Registration{})
	if err != nil {
		return "", err
	}
	return d.ID, nil
}

// Rule C5: the client trusts a CA of the directory. Without it, it refuses the
// manager unless verification is disabled, which it logs.
func TestExtraCAsAreTrusted(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	s := serveTLS(t, ca, nil)
	once := client.WithRetries(client.Retries{Attempts: 1})

	_, err := register(t, connect(t, s.URL, once))
	require.ErrorContains(t, err, "unknown authority")

	var log bytes.Buffer
	_, err = register(t, connect(t, s.URL, client.WithInsecureSkipVerify(), client.WithLogger(zerolog.New(&log))))
	require.NoError(t, err)
	assert.Contains(t, log.String(), `"level":"warn"`)
	assert.Contains(t, log.String(), "not verified")

	for name, content := range map[string][]byte{"pem": append([]byte("# a comment\n"), ca.pem...), "der": ca.cert.Raw} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "ca"), content)
			write(t, filepath.Join(dir, "README"), []byte("not a certificate"))
			write(t, filepath.Join(dir, ".hidden"), []byte("nor this"))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
			_, err := register(t, connect(t, s.URL, client.WithCACertsDir(dir)))
			require.NoError(t, err)
		})
	}
}

// The client refuses a certificate for another address, also with an additional
// CA.
func TestTheManagersNameIsVerified(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	s := serveTLS(t, ca, nil)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), ca.pem)
	_, err = register(t, connect(t, "https://localhost:"+port, client.WithCACertsDir(dir), client.WithRetries(client.Retries{Attempts: 1})))
	require.ErrorContains(t, err, "certificate")
}

// Rule C5: the client presents its certificate, and loads changed files without a
// restart.
func TestTheClientCertificateIsSentAndReloaded(t *testing.T) {
	t.Parallel()
	ca, clients := newAuthority(t, "ca"), newAuthority(t, "clients")
	s := serveTLS(t, ca, func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool() })
	dir, files := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), ca.pem)
	certFile, keyFile := filepath.Join(files, "cert"), filepath.Join(files, "key")
	show := func(name string) {
		cert, key := clients.leaf(t, name)
		write(t, certFile, cert)
		write(t, keyFile, key)
	}

	_, err := register(t, connect(t, s.URL, client.WithCACertsDir(dir), client.WithRetries(client.Retries{Attempts: 1})))
	require.Error(t, err, "without a certificate")
	<-s.gone

	show("first")
	var log bytes.Buffer
	c := connect(t, s.URL, client.WithCACertsDir(dir), client.WithClientCert(certFile, keyFile), client.LookAlways(),
		client.WithLogger(zerolog.New(&log).Level(zerolog.InfoLevel)))
	name, err := register(t, c)
	require.NoError(t, err)
	assert.Equal(t, "first", name)

	show("second")
	name, err = register(t, c)
	require.NoError(t, err)
	assert.Equal(t, "second", name)
	assert.Contains(t, log.String(), "loaded the changed certificates")
	select {
	case <-s.gone: // the connection that was made with the first one
	case <-within(t).Done():
		t.Fatal("the old connection stays open")
	}

	// The certificate is written and its key is not yet.
	log.Reset()
	cert, key := clients.leaf(t, "third")
	write(t, certFile, cert)
	for range 3 {
		name, err = register(t, c)
		require.NoError(t, err)
		assert.Equal(t, "second", name)
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("using the previous ones")), "logged once")
	write(t, keyFile, key)
	name, err = register(t, c)
	require.NoError(t, err)
	assert.Equal(t, "third", name)
}

// Rule C5: the client trusts an added CA, and no longer trusts a removed one,
// without a restart.
func TestTheCADirectoryIsReloaded(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t, "old"), newAuthority(t, "next")
	before, after := serveTLS(t, old, nil), serveTLS(t, next, nil)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "old.pem"), old.pem)
	opts := []client.Option{client.WithCACertsDir(dir), client.LookAlways(), client.WithRetries(client.Retries{Attempts: 1})}
	toBefore, toAfter := connect(t, before.URL, opts...), connect(t, after.URL, opts...)
	_, err := register(t, toBefore)
	require.NoError(t, err)
	_, err = register(t, toAfter)
	require.ErrorContains(t, err, "unknown authority")

	write(t, filepath.Join(dir, "next.pem"), next.pem)
	_, err = register(t, toAfter)
	require.NoError(t, err)

	require.NoError(t, os.Remove(filepath.Join(dir, "old.pem")))
	_, err = register(t, toBefore)
	require.ErrorContains(t, err, "unknown authority", "also its open connection has ended")
}

// Rule C5: the minimum version is TLS 1.2.
func TestTLS11IsRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	s := serveTLS(t, ca, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
	for name, opt := range map[string]client.Option{"verified": caDir(t, ca), "not verified": client.WithInsecureSkipVerify()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := register(t, connect(t, s.URL, opt, client.WithRetries(client.Retries{Attempts: 1})))
			require.ErrorContains(t, err, "protocol version")
		})
	}
}

// The client uses HTTP/2 if the manager supports it.
func TestHTTP2IsUsed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	cert, key := ca.leaf(t, "manager")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	s := newRawServer(func(w http.ResponseWriter, r *http.Request, _ int) {
		answer(w, 200, `{"resource":{"delegateId":"`+r.Proto+`"}}`)
	})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	proto, err := register(t, connect(t, s.URL, caDir(t, ca)))
	require.NoError(t, err)
	assert.Equal(t, "HTTP/2.0", proto)
}

func caDir(t *testing.T, ca *authority) client.Option {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), ca.pem)
	return client.WithCACertsDir(dir)
}

// New names the certificate files that it cannot use.
func TestUnusableCertificateFilesAreRefused(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	dir, empty := t.TempDir(), t.TempDir()
	cert, key := ca.leaf(t, "x")
	_, otherKey := ca.leaf(t, "y")
	for name, content := range map[string][]byte{"cert": cert, "key": key, "other": otherKey} {
		write(t, filepath.Join(dir, name), content)
	}
	write(t, filepath.Join(empty, "key"), key)
	write(t, filepath.Join(empty, ".hidden.pem"), ca.pem)
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, tc := range map[string]struct {
		opt  client.Option
		want string
	}{
		"no directory":          {client.WithCACertsDir(in("missing")), "missing"},
		"directory without one": {client.WithCACertsDir(empty), "contains no CA certificate"},
		"no certificate":        {client.WithClientCert(in("missing"), in("key")), "missing"},
		"no key":                {client.WithClientCert(in("cert"), in("missing")), "missing"},
		"another key":           {client.WithClientCert(in("cert"), in("other")), "reading the client certificate"},
		"half a pair":           {client.WithClientCert(in("cert"), ""), "needs two files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.New("https://manager.invalid", account, fakeSecret, tc.opt)
			require.ErrorContains(t, err, tc.want)
		})
	}
	if runtime.GOOS != "windows" { // a mounted secret is made of links
		linked := t.TempDir()
		require.NoError(t, os.Symlink(in("cert"), filepath.Join(linked, "ca.pem")))
		_, err := client.New("https://manager.invalid", account, fakeSecret, client.WithCACertsDir(linked))
		require.NoError(t, err)
	}
}
