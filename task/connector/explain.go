package connector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// explainName explains why a name has no addresses.
func explainName(host string, err error, proxy bool) *failure {
	if proxy {
		return fail(stepProxy, "correct the name in the proxy setting of the delegate (HTTPS_PROXY)", "the name of the proxy, %s, cannot be resolved: %s", host, nameProblem(err))
	}
	remedy := "correct the name in the address of the connector; if it is a name of an internal network, the delegate must use the name server of that network"
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsNotFound:
		return fail(stepName, remedy, "the name %s does not exist", host)
	case isTimeout(err):
		return fail(stepName, "check that the name server of the delegate's machine answers (/etc/resolv.conf)", "the name server gives no answer for %s in time", host)
	}
	return fail(stepName, "check the name server of the delegate's machine (/etc/resolv.conf)", "the name %s cannot be resolved: %s", host, nameProblem(err))
}

func nameProblem(err error) string {
	var d *net.DNSError
	if errors.As(err, &d) {
		return d.Err
	}
	return err.Error()
}

// explainDial explains why no address accepts a connection.
func explainDial(address string, err error, proxy bool) *failure {
	step, what, refused := stepConnection, address, "check the port in the address, and that the server runs"
	if proxy {
		step, what, refused = stepProxy, "the proxy "+address, "correct the proxy setting of the delegate (HTTPS_PROXY), or start the proxy"
	}
	const direct = "if the network of the delegate permits connections only through a proxy, set HTTPS_PROXY (HTTP_PROXY for http) in the delegate's environment; " +
		"otherwise permit the connection in the firewall"
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(step, refused, "%s refuses connections: no program listens on the port", what)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		if proxy {
			return fail(step, refused, "there is no route to %s", what)
		}
		return fail(step, direct, "there is no direct way from the delegate to %s", what)
	case isTimeout(err):
		if proxy {
			return fail(step, refused, "%s does not answer in time", what)
		}
		return fail(step, direct, "%s does not answer: a firewall may drop the packets, or a proxy is needed", what)
	}
	return fail(step, refused, "no connection to %s: %s", what, systemProblem(err))
}

func systemProblem(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return err.Error()
}

const addCA = "put the certificate of the CA into the option ca of the connector (PEM), or into the folder of CERTS_DIR of the delegate"

// explainTLS explains why the handshake failed.
func explainTLS(host string, err error, now time.Time) *failure {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		record  tls.RecordHeaderError
		alert   tls.AlertError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := invalid.Cert
		if c != nil && now.Before(c.NotBefore) {
			return fail(stepTLS, "check the clock of the delegate's machine", "the certificate of %s is valid only from %s", host, c.NotBefore.UTC().Format(time.RFC3339))
		}
		if c != nil {
			return fail(stepTLS, "renew the certificate of the server; if it is new, check the clock of the delegate's machine",
				"the certificate of %s has expired at %s", host, c.NotAfter.UTC().Format(time.RFC3339))
		}
		return fail(stepTLS, "renew the certificate of the server", "the certificate of %s has expired", host)
	case errors.As(err, &name):
		names := "none"
		if c := name.Certificate; c != nil {
			all := c.DNSNames
			for _, ip := range c.IPAddresses {
				all = append(all, ip.String())
			}
			if len(all) > 0 {
				names = strings.Join(all[:min(len(all), 5)], ", ")
			}
		}
		return fail(stepTLS, "use a name of the certificate in the address, or give the server a certificate for "+host, "the certificate is not for %s; it is for: %s", host, names)
	case errors.As(err, &unknown):
		issuer := ""
		if c := unknown.Cert; c != nil {
			issuer = " (" + c.Issuer.String() + ")"
		}
		return fail(stepTLS, addCA, "the certificate of %s is signed by a CA that the delegate does not know%s", host, issuer)
	case errors.As(err, &invalid):
		return fail(stepTLS, "give the server another certificate", "the certificate of %s is not valid: %s", host, invalid.Error())
	case errors.As(err, &record):
		return fail(stepTLS, "use http:// in the address if the server has no TLS, or its port for TLS", "%s does not speak TLS on this port", host)
	case errors.As(err, &alert):
		return fail(stepTLS, "if the server requires a client certificate, set the secrets client_cert and client_key", "%s ends the handshake: %s", host, alert.Error())
	case isTimeout(err):
		return slow(stepTLS, host)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fail(stepTLS, "check that a proxy or a firewall lets TLS to this host pass", "%s closed the connection during the TLS handshake", host)
	}
	return fail(stepTLS, addCA, "the TLS handshake with %s failed: %s", host, err)
}

// slow explains which step did not end in time.
func slow(step, host string) *failure {
	switch step {
	case stepName:
		return explainName(host, context.DeadlineExceeded, false)
	case stepConnection:
		return explainDial(host, context.DeadlineExceeded, false)
	case stepProxy:
		return fail(step, "check that the proxy can reach the server", "the proxy gives no connection to %s in time", host)
	case stepTLS:
		return fail(step, "check the load of the server, and that a firewall lets TLS to this host pass", "the TLS handshake with %s does not end in time", host)
	case stepHostKey:
		return fail(step, "check the load of the server, and that it is an SSH server", "the SSH handshake with %s does not end in time", host)
	}
	return fail(stepAnswer, "check the load of the server, or allow the test more time", "%s is connected but does not answer in time", host)
}
