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

// trustFiles are the files of the TLS configuration.
type trustFiles struct {
	caDir, certFile, keyFile string
}

func (f trustFiles) isConfigured() bool { return f.caDir != "" || f.certFile != "" }

// snapshot holds the metadata of files. It shows changes without reading them.
type snapshot map[string]fs.FileInfo

func (s snapshot) equal(other snapshot) bool {
	if len(s) != len(other) {
		return false
	}
	for name, a := range s {
		b, ok := other[name]
		// A replaced file may have the same size and time.
		if !ok || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) || !os.SameFile(a, b) {
			return false
		}
	}
	return true
}

// snapshot reads the metadata of the files.
func (f trustFiles) snapshot() (snapshot, error) {
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
			return nil, fmt.Errorf("reading the metadata of the certificate files: %w", err)
		}
	}
	return s, nil
}

// caFiles returns the files of the CA directory, if it is set. A secret that
// Kubernetes mounts has its real files in subdirectories with a leading "..".
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
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // Stat follows links
			names = append(names, name)
		}
	}
	return names, nil
}

// load reads the files into a TLS configuration.
func (f trustFiles) load(insecure bool, log zerolog.Logger) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: insecure, //nolint:gosec // opt-in, and logged (rule C5)
	}
	if f.caDir != "" {
		pool, err := f.loadPool(log)
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

// loadPool returns the system's certificates and those of the CA directory. It logs
// a warning for a file without a certificate. A directory without a certificate is
// an error.
func (f trustFiles) loadPool(log zerolog.Logger) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		log.Warn().Err(err).Msg("cannot read the system's certificates, trusting only those of the CA directory")
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
			log.Warn().Err(err).Str("file", name).Msg("skipping a file of the CA directory")
		}
		for _, c := range certs {
			pool.AddCert(c)
			found = true
		}
	}
	if !found {
		return nil, fmt.Errorf("the directory %s contains no CA certificate in PEM or DER form", f.caDir)
	}
	return pool, nil
}

// parseCerts parses the certificates of a PEM or DER file.
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
		return nil, errors.New("the file contains no certificate")
	}
	return certs, nil
}
