package client

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// gitNetwork has the options that git needs as well. It is empty with a custom transport.
type gitNetwork struct {
	files trustFiles
	proxy *ProxyConfig
}

// systemBundles are the files with the certificates that the system trusts. Each system
// has one of them.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older Fedora and RHEL
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/ssl/cert.pem",                                 // macOS, BSD
}

// GitEnvironment returns variables with which git uses the certificates and the proxy of
// the options, like the calls (rule C5). It writes the certificates that git must trust,
// which include those of the system, to a file in dir. The proxy's password is in the
// variables: give them only to git's own processes.
//
// Git on Windows uses the certificate store of the system in place of the file, unless it
// is configured to use OpenSSL.
func (h *HTTP) GitEnvironment(dir string) (map[string]string, error) {
	env := map[string]string{}
	if h.git.files.caDir != "" {
		bundle := filepath.Join(dir, "trusted.pem")
		if err := h.git.files.writeBundle(bundle); err != nil {
			return nil, err
		}
		env["GIT_SSL_CAINFO"], env["GIT_PROXY_SSL_CAINFO"] = bundle, bundle
	}
	if f := h.git.files; f.certFile != "" {
		env["GIT_SSL_CERT"], env["GIT_SSL_KEY"] = f.certFile, f.keyFile
	}
	if h.git.proxy == nil {
		return env, nil
	}
	u, err := h.git.proxy.url()
	if err != nil {
		return nil, err
	}
	// Git reads the names in lower case, and git-lfs those in upper case first.
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		env[name], env[strings.ToUpper(name)] = u.String(), u.String()
	}
	direct := gitNoProxy(h.git.proxy.NoProxy)
	env["no_proxy"], env["NO_PROXY"] = direct, direct
	return env, nil
}

// gitNoProxy returns a list of destinations in the form of git.
func gitNoProxy(list string) string {
	var out []string
	for entry := range strings.SplitSeq(list, ",") {
		switch entry = strings.TrimSpace(entry); entry {
		case "":
		case "*":
			return "*" // git knows it only alone
		default:
			out = append(out, strings.TrimPrefix(entry, "*"))
		}
	}
	return strings.Join(out, ",")
}

// writeBundle writes the certificates of the system and of the CA directory to a file.
func (f trustFiles) writeBundle(path string) error {
	bundle, err := readSystemBundle()
	if err != nil {
		return err
	}
	names, err := f.caFiles()
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := os.ReadFile(name) //nolint:gosec // the operator names the directory
		if err != nil {
			return fmt.Errorf("reading a CA certificate: %w", err)
		}
		certs, _ := parseCerts(b) // the transport has logged files without a certificate
		for _, c := range certs {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
	}
	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		return fmt.Errorf("writing the certificates for git: %w", err)
	}
	return nil
}

// readSystemBundle returns the certificates that git trusts without GIT_SSL_CAINFO of this
// package, empty if they are not in a known file.
func readSystemBundle() ([]byte, error) {
	files := systemBundles
	if named := cmp.Or(os.Getenv("GIT_SSL_CAINFO"), os.Getenv("SSL_CERT_FILE")); named != "" {
		files = []string{named}
	}
	for _, name := range files {
		b, err := os.ReadFile(name) //nolint:gosec // the operator or the system names the file
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the certificates of the system: %w", err)
		}
		if !bytes.HasSuffix(b, []byte("\n")) {
			b = append(b, '\n')
		}
		return b, nil
	}
	return nil, nil
}
