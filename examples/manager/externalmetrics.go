package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/manager"
)

// externalMetricsOptions are the settings of the external metrics API for the API server of a Kubernetes cluster.
type externalMetricsOptions struct {
	Listen                     string
	Cert, Key, ClientCA, Names string
	Accounts                   string
}

func (o *externalMetricsOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.Listen, "external-metrics-listen", "", "address of the external metrics API of Kubernetes, for the API server of a cluster (docs/kubernetes.md#scale)")
	fs.StringVar(&o.Cert, "external-metrics-cert-file", "", "certificate file of that address, for the name of its Service (NAME.NAMESPACE.svc); changes need no restart")
	fs.StringVar(&o.Key, "external-metrics-key-file", "", "the certificate's key file")
	fs.StringVar(&o.ClientCA, "external-metrics-client-ca-file", "", "PEM file with the authorities of the API server's client certificate: requestheader-client-ca-file of the cluster; changes need no restart")
	fs.StringVar(&o.Names, "external-metrics-client-names", "front-proxy-client", "comma-separated common names of that certificate: requestheader-allowed-names of the cluster")
	fs.StringVar(&o.Accounts, "external-metrics-accounts", "", "comma-separated namespaces of the cluster with the account whose stages they see, such as ci=demo")
}

// namespaces reads "namespace=account,...".
func (o *externalMetricsOptions) namespaces() (map[string]string, error) {
	out := map[string]string{}
	for _, part := range serving.List(o.Accounts) {
		namespace, account, ok := strings.Cut(part, "=")
		if _, twice := out[namespace]; !ok || namespace == "" || account == "" || twice {
			return nil, fmt.Errorf("EXTERNAL_METRICS_ACCOUNTS: %q: each entry must be of the form namespace=account, with each namespace once", part)
		}
		out[namespace] = account
	}
	return out, nil
}

// check checks the settings. It takes no port.
func (o *externalMetricsOptions) check() error {
	if o.Listen == "" {
		if o.Cert+o.Key+o.ClientCA+o.Accounts != "" {
			return errors.New("EXTERNAL_METRICS_LISTEN is missing: the other settings of the external metrics have no effect without it")
		}
		return nil
	}
	for name, value := range map[string]string{
		"EXTERNAL_METRICS_CERT_FILE": o.Cert, "EXTERNAL_METRICS_KEY_FILE": o.Key, "EXTERNAL_METRICS_CLIENT_CA_FILE": o.ClientCA,
		"EXTERNAL_METRICS_CLIENT_NAMES": o.Names, "EXTERNAL_METRICS_ACCOUNTS": o.Accounts,
	} {
		if value == "" {
			return fmt.Errorf("%s is missing: the external metrics need it", name)
		}
	}
	_, err := o.namespaces()
	if err == nil {
		_, err = o.certificates(zerolog.Nop())
	}
	return err
}

// certificates reads the files. Certificates of both sides are renewed while the manager runs.
func (o *externalMetricsOptions) certificates(log zerolog.Logger) (*serving.Certificates, error) {
	names := serving.List(o.Names)
	return serving.LoadCertificates(serving.CertificateFiles{
		Cert: o.Cert, Key: o.Key, Authorities: o.ClientCA,
		Settings: [3]string{"EXTERNAL_METRICS_CERT_FILE", "EXTERNAL_METRICS_KEY_FILE", "EXTERNAL_METRICS_CLIENT_CA_FILE"},
		Verify: func(s tls.ConnectionState) error {
			if name := s.PeerCertificates[0].Subject.CommonName; !slices.Contains(names, name) {
				return fmt.Errorf("the client certificate has the name %q: EXTERNAL_METRICS_CLIENT_NAMES has the names that are allowed", name)
			}
			return nil
		},
	}, log)
}

// serveExternalMetrics serves the external metrics API if the settings ask for it. The returned function ends it.
func serveExternalMetrics(ctx context.Context, o *externalMetricsOptions, m *manager.Manager, out io.Writer, log zerolog.Logger) (func(context.Context) error, error) {
	if o.Listen == "" {
		return func(context.Context) error { return nil }, nil
	}
	namespaces, err := o.namespaces()
	if err != nil {
		return nil, err
	}
	h, err := m.ExternalMetrics(namespaces)
	if err != nil {
		return nil, fmt.Errorf("EXTERNAL_METRICS_ACCOUNTS: %w", err)
	}
	certificates, err := o.certificates(log)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("EXTERNAL_METRICS_LISTEN: %w", err)
	}
	_, _ = fmt.Fprintf(out, "external metrics at https://%s\n", l.Addr()) // a closed output must not end the manager
	srv := httpserver.New(h)
	served := make(chan error, 1)
	go func() {
		served <- srv.Serve(tls.NewListener(httpserver.LimitConnections(100, 100)(l), certificates.Config(tls.RequireAndVerifyClientCert)))
	}()
	return func(ctx context.Context) error {
		err := srv.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, srv.Close())
		}
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	}, nil
}
