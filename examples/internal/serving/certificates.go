package serving

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/rs/zerolog"
)

// CertificateFiles are the files of a server's certificates, with the names of their settings.
type CertificateFiles struct {
	Cert, Key, Authorities string // Authorities may be empty
	// Settings are the names of the settings of the three files.
	Settings [3]string
	// Verify checks each connection, also a resumed one. Nil accepts it.
	Verify func(tls.ConnectionState) error
}

// Certificates are the certificates of a server. Each handshake reads their small files, so that
// a renewed certificate needs no restart. If the files are not valid, for
// example half written, the previous ones stay in use. It needs no goroutine.
type Certificates struct {
	files CertificateFiles
	log   zerolog.Logger

	mu      sync.Mutex
	seen    [][]byte // the files of configs
	problem string   // that was logged last
	configs map[tls.ClientAuthType]*tls.Config
}

// LoadCertificates reads the files. log gets the later changes.
func LoadCertificates(files CertificateFiles, log zerolog.Logger) (*Certificates, error) {
	c := &Certificates{files: files, log: log}
	seen, err := c.read()
	if err == nil {
		err = c.use(seen)
	}
	return c, err
}

// read returns the content of the files.
func (c *Certificates) read() ([][]byte, error) {
	files := make([][]byte, 3)
	for i, path := range [...]string{c.files.Cert, c.files.Key, c.files.Authorities} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.files.Settings[i], err)
		}
		files[i] = text
	}
	return files, nil
}

// use makes the configurations of new connections from the content of the files.
func (c *Certificates) use(files [][]byte) error {
	pair, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return fmt.Errorf("%s, %s: %w", c.files.Settings[0], c.files.Settings[1], err)
	}
	var authorities *x509.CertPool
	if c.files.Authorities != "" {
		if authorities = x509.NewCertPool(); !authorities.AppendCertsFromPEM(files[2]) {
			return fmt.Errorf("%s: %s has no certificate in PEM", c.files.Settings[2], c.files.Authorities)
		}
	}
	c.seen, c.configs = files, map[tls.ClientAuthType]*tls.Config{}
	for _, clients := range []tls.ClientAuthType{tls.NoClientCert, tls.VerifyClientCertIfGiven, tls.RequireAndVerifyClientCert} {
		c.configs[clients] = &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientAuth: clients, ClientCAs: authorities,
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, VerifyConnection: c.files.Verify,
		}
	}
	return nil
}

// Config returns the configuration of a listener.
func (c *Certificates) Config(clients tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(clients), nil },
	}
}

// current returns the configuration of a new connection.
func (c *Certificates) current(clients tls.ClientAuthType) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reload()
	return c.configs[clients]
}

// reload uses the files if they have changed. The caller holds mu.
func (c *Certificates) reload() {
	files, err := c.read()
	if err == nil {
		if slices.EqualFunc(files, c.seen, bytes.Equal) {
			c.problem = ""
			return
		}
		if err = c.use(files); err == nil {
			c.problem = ""
			c.log.Info().Msg("loaded the changed certificates")
			return
		}
	}
	if text := err.Error(); text != c.problem {
		c.problem = text
		c.log.Warn().Err(err).Msg("cannot load the changed certificates, using the previous ones")
	}
}
