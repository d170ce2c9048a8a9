package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/agent"
)

// handshake connects a client to a server of b and returns the errors of both ends.
func handshake(t *testing.T, b *agent.Boot, client *tls.Config) (atServer, atClient error) {
	t.Helper()
	cfg, err := b.TLS()
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).HandshakeContext(t.Context())
			if err == nil {
				_, err = c.Write([]byte("x"))
			}
			_ = c.Close()
		}
		served <- err
	}()
	c, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: client}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // a refused client gets the error here
		_ = c.Close()
	}
	return <-served, err
}

// docs/protocol.md, section 5: both ends use mutual TLS 1.3 with one leaf, and accept no
// other certificate.
func TestOnlyTheCertificateOfTheMachineIsAccepted(t *testing.T) {
	t.Parallel()
	b, other := newBoot(t), newBoot(t)
	good, err := b.ClientTLS("drone")
	require.NoError(t, err)
	atServer, atClient := handshake(t, b, good)
	require.NoError(t, atServer)
	require.NoError(t, atClient)

	foreign, err := other.ClientTLS("drone")
	require.NoError(t, err)
	_, atClient = handshake(t, b, foreign)
	require.Error(t, atClient, "another machine's CA")

	otherCA := good.Clone()
	otherCA.Certificates = foreign.Certificates
	atServer, _ = handshake(t, b, otherCA)
	require.Error(t, atServer, "another machine's leaf")

	noCertificate := good.Clone()
	noCertificate.Certificates = nil
	atServer, _ = handshake(t, b, noCertificate)
	require.Error(t, atServer, "no certificate")

	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	atServer, atClient = handshake(t, b, old)
	require.Error(t, atServer, "TLS 1.2")
	require.Error(t, atClient)

	misnamed, err := b.ClientTLS("")
	require.NoError(t, err)
	_, atClient = handshake(t, b, misnamed)
	require.ErrorContains(t, atClient, "distributed-dlite")
}

// docs/protocol.md, section 5: an ECDSA P-256 leaf with the DNS name of the server, valid for
// a clock that is slightly behind.
func TestTheCertificatesMatchTheProtocol(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, cert, key, err := agent.Issue("", now)
	require.NoError(t, err)
	parse := func(text []byte) *x509.Certificate {
		block, rest := pem.Decode(text)
		require.Empty(t, rest)
		c, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		return c
	}
	root, leaf := parse(ca), parse(cert)
	assert.True(t, root.IsCA)
	assert.False(t, leaf.IsCA)
	assert.Equal(t, []string{"distributed-dlite"}, leaf.DNSNames)
	public, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	require.True(t, ok)
	assert.Equal(t, elliptic.P256(), public.Curve)
	assert.True(t, leaf.NotBefore.Before(now.Add(-30*time.Minute)))
	assert.True(t, leaf.NotAfter.After(now.Add(30*24*time.Hour)))
	require.NoError(t, leaf.CheckSignatureFrom(root))
	_, again, _, err := agent.Issue("", now)
	require.NoError(t, err)
	assert.NotEqual(t, leaf.SerialNumber, parse(again).SerialNumber)
	_, err = tls.X509KeyPair(cert, key)
	require.NoError(t, err)
}

func TestAnInvalidBootReportsTheMissingParts(t *testing.T) {
	t.Parallel()
	b := newBoot(t)
	for want, change := range map[string]func(b *agent.Boot){
		"ca contains no PEM certificate": func(b *agent.Boot) { b.CA = nil },
		"cert and key":                   func(b *agent.Boot) { b.Key = []byte("visibly-fake-key") },
	} {
		wrong := *b
		change(&wrong)
		for _, f := range []func() (*tls.Config, error){wrong.TLS, func() (*tls.Config, error) { return wrong.ClientTLS("") }} {
			_, err := f()
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "visibly-fake-key")
		}
	}
}

// docs/protocol.md, section 5: HTTP/2 by ALPN, and HTTP/1.1 for other clients.
func TestBothVersionsOfHTTPAreServed(t *testing.T) {
	t.Parallel()
	f := newAgent(t, agent.Config{})
	for _, two := range []bool{true, false} {
		tr := f.http.Transport.(*http.Transport).Clone()
		tr.TLSClientConfig.NextProtos = nil // the clone has its own TLS configuration
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP2(two)
		tr.Protocols.SetHTTP1(!two)
		resp, err := (&http.Client{Transport: tr}).Get(f.url + "/healthz") //nolint:noctx // short
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, map[bool]int{true: 2, false: 1}[two], resp.ProtoMajor)
		tr.CloseIdleConnections()
	}
}
