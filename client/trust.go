package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"
)

// trustFiles are the files that TLS is configured with.
type trustFiles struct {
	caDir, certFile, keyFile string
}

func (f trustFiles) any() bool { return f.caDir != "" || f.certFile != "" }

// snapshot tells whether files have changed, without reading them.
type snapshot map[string]fs.FileInfo

func (s snapshot) same(other snapshot) bool {
	if len(s) != len(other) {
		return false
	}
	for name, a := range s {
		b, ok := other[name]
		// A file that was replaced may keep its size and time.
		if !ok || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || !os.SameFile(a, b) {
			return false
		}
	}
	return true
}

// look takes a snapshot.
func (f trustFiles) look() (snapshot, error) {
	names, err := f.caFiles()
	if err != nil {
		return nil, err
	}
	if f.certFile != "" {
		names = append(names, f.certFile, f.keyFile)
	}
	s := make(snapshot, len(names))
	for _, name := range names {
		if s[name], err = os.Stat(name); err != nil {
			return nil, fmt.Errorf("looking at the certificate files: %w", err)
		}
	}
	return s, nil
}

// caFiles are the files of the directory; empty without one. A secret mounted
// by Kubernetes has its real files in sub-directories that begin with two dots.
func (f trustFiles) caFiles() ([]string, error) {
	if f.caDir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(f.caDir)
	if err != nil {
		return nil, fmt.Errorf("reading the directory of CA certificates: %w", err)
	}
	var names []string
	for _, e := range entries {
		name := filepath.Join(f.caDir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // links count as what they lead to
			names = append(names, name)
		}
	}
	return names, nil
}

// load reads the files into a TLS configuration.
func (f trustFiles) load(insecure bool, log zerolog.Logger) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: insecure, //nolint:gosec // opt-in, and logged (SPEC C5)
	}
	if f.caDir != "" {
		pool, err := f.pool(log)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if f.certFile != "" {
		cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate %s and its key %s: %w", f.certFile, f.keyFile, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// pool is the system's certificates and those of the directory. A file without a
// certificate is only warned of, a directory without one is an error.
func (f trustFiles) pool(log zerolog.Logger) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		log.Warn().Err(err).Msg("the system's certificates cannot be read, only those of the directory count")
		pool = x509.NewCertPool()
	}
	names, err := f.caFiles()
	if err != nil {
		return nil, err
	}
	found := false
	for _, name := range names {
		b, err := os.ReadFile(name) //nolint:gosec // the operator names the directory
		if err != nil {
			return nil, fmt.Errorf("reading a CA certificate: %w", err)
		}
		certs, err := parseCerts(b)
		if err != nil {
			log.Warn().Err(err).Str("file", name).Msg("a file among the CA certificates is skipped")
		}
		for _, c := range certs {
			pool.AddCert(c)
			found = true
		}
	}
	if !found {
		return nil, fmt.Errorf("the directory %s holds no CA certificate in PEM or DER form", f.caDir)
	}
	return pool, nil
}

// parseCerts reads the certificates of a PEM or DER file.
func parseCerts(b []byte) ([]*x509.Certificate, error) {
	if !bytes.Contains(b, []byte("-----BEGIN")) {
		certs, err := x509.ParseCertificates(b)
		if err == nil && len(certs) == 0 {
			err = errors.New("the file is empty")
		}
		return certs, err
	}
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return certs, err
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no certificate")
	}
	return certs, nil
}
