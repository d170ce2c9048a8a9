package connector

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

const fakeToken = "visibly-fake-token-of-a-test"

// try tests a connector as a delegate does, and checks that the result contains no secret.
func try(t *testing.T, c connector) testResult {
	t.Helper()
	return tryWith(t, &tester{base: &http.Transport{}, resolver: emptyResolver(t)}, c, time.Minute)
}

func tryWith(t *testing.T, network *tester, c connector, timeout time.Duration) testResult {
	t.Helper()
	h := router.New(router.RouteMap{typeTest: network.handler()}, router.WithMiddleware(routersecrets.Resolve(secrets.ResolverConfig{})))
	data, err := json.Marshal(testRequest{Connector: c, TimeoutMS: timeout.Milliseconds()})
	require.NoError(t, err)
	resp, _ := task.Serve(t.Context(), h, &task.Task{ID: "1", Type: typeTest, Data: data})
	require.Equal(t, task.OK, resp.Code, resp.Error)
	for _, v := range c.Secrets {
		assert.NotContains(t, string(resp.Data), v)
	}
	var r testResult
	require.NoError(t, json.Unmarshal(resp.Data, &r))
	for i, s := range r.Steps {
		assert.NotEmpty(t, s.Message)
		assert.Equal(t, r.OK || i < len(r.Steps)-1, s.OK, "only the last step may fail: %+v", r)
		if !s.OK {
			assert.NotEmpty(t, s.Remedy, "%+v", s)
		}
	}
	return r
}

// failed returns the step that failed.
func failed(t *testing.T, r testResult) testStep {
	t.Helper()
	require.False(t, r.OK, "%+v", r)
	require.NotEmpty(t, r.Steps)
	return r.Steps[len(r.Steps)-1]
}

// steps returns the names of the steps of a success, each one once in a row.
func steps(t *testing.T, r testResult) string {
	t.Helper()
	require.True(t, r.OK, "%+v", r)
	var names []string
	for _, s := range r.Steps {
		if len(names) == 0 || names[len(names)-1] != s.Name {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " ")
}

// emptyResolver returns a resolver whose name server knows no name.
func emptyResolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if n > 3 {
				b[2], b[3] = b[2]|0x80, b[3]&0xf0|3 // an answer: there is no such name
				_, _ = conn.WriteTo(b[:n], from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem = a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// issue completes a certificate and signs it. Without a parent it signs itself.
func (a *authority) issue(c *x509.Certificate, parent *authority) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(90 * 24 * time.Hour)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-365 * 24 * time.Hour)
	}
	signer, by := c, key
	if parent != nil {
		signer, by = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, signer, &key.PublicKey, by)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// serve starts a TLS server with a certificate of the authority.
func (a *authority) serve(c *x509.Certificate, h http.HandlerFunc) *httptest.Server {
	a.t.Helper()
	if c.IPAddresses == nil && c.DNSNames == nil {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	cert, key, _ := a.issue(c, a)
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s
}

// serveHTTP starts a server without TLS.
func serveHTTP(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
