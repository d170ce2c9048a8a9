package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"
)

const (
	// defaultServerName is the name in the certificates of agents.
	defaultServerName = "distributed-dlite"
	// defaultListen is the default address of an agent in a machine.
	defaultListen = ":9079"
	// validity of certificates exceeds the lifetime of any machine.
	validity = 365 * 24 * time.Hour
)

// Server returns a server for h with the time-outs and HTTP/2 settings of an agent. Polls and
// streams stay open as long as a step runs, and pings detect a dead client within 30 seconds. Use
// ServeTLS if cfg is set. A nil cfg serves plain HTTP, for a connection that is private already.
func Server(h http.Handler, cfg *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg == nil)
	return &http.Server{
		Handler: h, TLSConfig: cfg, Protocols: protocols,
		ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2000, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// TLS returns the configuration of the agent that received b: mutual TLS 1.3. Only clients with
// the leaf are accepted.
func (b *Boot) TLS() (*tls.Config, error) {
	pool, cert, err := b.identity()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

// ClientTLS returns the configuration of the client of the agent that received b.
func (b *Boot) ClientTLS(serverName string) (*tls.Config, error) {
	pool, cert, err := b.identity()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		RootCAs: pool, ServerName: firstOf(serverName, defaultServerName),
	}, nil
}

// identity parses the PEM texts. Its errors never quote them.
func (b *Boot) identity() (*x509.CertPool, tls.Certificate, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b.CA) {
		return nil, tls.Certificate{}, errors.New("agent: ca contains no PEM certificate")
	}
	cert, err := tls.X509KeyPair(b.Cert, b.Key)
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("agent: cert and key: %w", err)
	}
	return pool, cert, nil
}

// Issue creates a CA, and one leaf for agent and client, as PEM. The CA's key is discarded. The
// certificates are valid from one hour before now, for one year after now.
func Issue(serverName string, now time.Time) (ca, cert, key []byte, err error) {
	serverName = firstOf(serverName, defaultServerName)
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agent: make the CA: %w", err)
	}
	root := template("dlite agent CA", now)
	root.IsCA, root.BasicConstraintsValid = true, true
	root.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	caDER, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agent: make the CA: %w", err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agent: make the leaf: %w", err)
	}
	leaf := template(serverName, now)
	leaf.DNSNames = []string{serverName}
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), caKey)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agent: make the leaf: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("agent: make the leaf: %w", err)
	}
	return encode("CERTIFICATE", caDER), encode("CERTIFICATE", leafDER), encode("PRIVATE KEY", keyDER), nil
}

func template(name string, now time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails, because reading random bytes does not
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
