package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/rs/zerolog"
)

// address is one address of LISTEN.
type address struct {
	text string
	// clients is the mode: whether the clients of this address need a certificate.
	clients tls.ClientAuthType
	// tls is nil for plain HTTP.
	tls *tls.Config
}

// modes are the words that may follow an address of LISTEN.
var modes = map[string]tls.ClientAuthType{
	"required": tls.RequireAndVerifyClientCert,
	"optional": tls.VerifyClientCertIfGiven,
}

// addresses reads LISTEN and the files of its certificates. It takes no port.
func (o *Options) addresses(log zerolog.Logger) ([]address, error) {
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, errors.New("TLS_CERT_FILE and TLS_KEY_FILE: set both, or none for plain HTTP")
	}
	var out []address
	asks := false // for certificates, at any address
	for _, text := range List(o.Listen) {
		a := address{text: text}
		if host, mode, ok := strings.Cut(text, "="); ok {
			if a.text, a.clients = strings.TrimSpace(host), modes[strings.TrimSpace(mode)]; a.clients == tls.NoClientCert {
				return nil, fmt.Errorf("LISTEN: %s: only =required or =optional may follow an address", text)
			}
		}
		asks = asks || a.clients != tls.NoClientCert
		out = append(out, a)
	}
	switch {
	case len(out) == 0:
		return nil, errors.New("LISTEN: it has no address: set one, such as 127.0.0.1:3460")
	case asks && o.TLSCert == "":
		return nil, errors.New("LISTEN: client certificates need TLS: set TLS_CERT_FILE and TLS_KEY_FILE")
	case asks && o.ClientCA == "":
		return nil, errors.New("LISTEN: client certificates need authorities: set CLIENT_CA_FILE to a PEM file with their certificates")
	case !asks && o.ClientCA != "":
		return nil, errors.New("CLIENT_CA_FILE: no address of LISTEN asks for client certificates: append =required or =optional to one")
	case o.TLSCert == "":
		return out, nil
	}
	certificates, err := LoadCertificates(CertificateFiles{
		Cert: o.TLSCert, Key: o.TLSKey, Authorities: o.ClientCA, Settings: [3]string{"TLS_CERT_FILE", "TLS_KEY_FILE", "CLIENT_CA_FILE"},
	}, log)
	for i := range out {
		out[i].tls = certificates.Config(out[i].clients)
	}
	return out, err
}

// port is an address that the program has taken.
type port struct {
	address
	net.Listener
}

// url returns the address as a client without a proxy uses it.
func (p port) url() string {
	if p.tls != nil {
		return "https://" + p.Addr().String()
	}
	return "http://" + p.Addr().String()
}

// Ports are all addresses of a program.
type Ports []port

// Open reads the certificates and takes all addresses of Listen, or none. New connections get the certificates that the
// files have then: log gets the changes.
func (o *Options) Open(ctx context.Context, log zerolog.Logger) (taken Ports, err error) {
	addresses, err := o.addresses(log)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.text)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("LISTEN: %w: choose another address, such as 127.0.0.1:0 for a free port", err), taken.Close())
		}
		taken = append(taken, port{a, l})
	}
	return taken, nil
}

// URL returns the first address that requires no client certificate, because agents in machines and pods have none.
// If all require one, it returns the first.
func (p Ports) URL() string {
	for _, one := range p {
		if one.clients != tls.RequireAndVerifyClientCert {
			return one.url()
		}
	}
	return p[0].url()
}

// String lists several addresses, a line each. It is empty for a single one.
func (p Ports) String() string {
	if len(p) < 2 {
		return ""
	}
	var b strings.Builder
	for _, one := range p {
		note := ""
		for name, mode := range modes {
			if mode == one.clients {
				note = ", client certificates " + name
			}
		}
		fmt.Fprintf(&b, "listening at %s%s\n", one.url(), note)
	}
	return b.String()
}

// Close closes all of them.
func (p Ports) Close() (err error) {
	for _, one := range p {
		err = errors.Join(err, one.Close())
	}
	return err
}
