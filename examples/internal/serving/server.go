// Package serving contains the code that the programs with an API share: addresses, certificates, limits of clients,
// accounts, and the settings of pipelines.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/internal/logheader"
)

// Options are the settings that the servers have in common.
type Options struct {
	// Listen are the addresses of the API, with commas between them.
	Listen          string
	TLSCert, TLSKey string
	ClientCA        string
	LogLevel        string
	// HTTPBind is the address of metrics and health.
	HTTPBind string

	// Connections, PerAddress and PerToken bound what clients of the API can occupy. 0 means no limit.
	Connections, PerAddress, PerToken int
}

// Register adds the flags. Serves says what the program serves.
func (o *Options) Register(fs *flag.FlagSet, listen, serves, metrics string) {
	fs.StringVar(&o.Listen, "listen", listen, "comma-separated addresses of "+serves+"; =required or =optional after one asks its clients for certificates")
	fs.StringVar(&o.TLSCert, "tls-cert-file", "", "certificate file; without one the server speaks plain HTTP; a changed file needs no restart")
	fs.StringVar(&o.TLSKey, "tls-key-file", "", "the certificate's key file")
	fs.StringVar(&o.ClientCA, "client-ca-file", "", "PEM file with the authorities of client certificates")
	fs.StringVar(&o.LogLevel, "log-level", "info", "trace, debug, info, warn or error")
	fs.StringVar(&o.HTTPBind, "http-bind", "", "address of /metrics, /healthz and /readyz, or off (default: "+metrics+", unless that is taken)")
	fs.IntVar(&o.Connections, "max-connections", 10_000, "connections at once; more are closed; 0 is no limit")
	fs.IntVar(&o.PerAddress, "max-connections-per-address", 2500, "connections at once from one address; raise it to max-connections if all clients come through one proxy; 0 is no limit")
	fs.IntVar(&o.PerToken, "max-requests-per-token", 1000, "requests at once with one token, held ones too; more are answered 429; 0 is no limit")
}

// Check checks the settings that Open does not check.
func (o *Options) Check() error {
	for name, n := range map[string]int{
		"MAX_CONNECTIONS": o.Connections, "MAX_CONNECTIONS_PER_ADDRESS": o.PerAddress, "MAX_REQUESTS_PER_TOKEN": o.PerToken,
	} {
		if n < 0 {
			return fmt.Errorf("%s: it must be 0 or more", name)
		}
	}
	return nil
}

// Serve serves at all ports until ctx ends. Then it calls end, which ends the long calls, and waits for the others.
func (o *Options) Serve(ctx context.Context, at Ports, h http.Handler, end func() error) error {
	srv := httpserver.New(httpserver.LimitRequests(o.PerToken, "Authorization", logheader.Token)(h))
	limit := httpserver.LimitConnections(o.Connections, o.PerAddress)
	served := make(chan error, len(at))
	for _, p := range at {
		l := limit(p.Listener)
		if p.tls != nil {
			l = tls.NewListener(l, p.tls)
		}
		go func() { served <- srv.Serve(l) }()
	}
	select {
	case err := <-served:
		return errors.Join(err, srv.Close())
	case <-ctx.Done():
	}
	err := end()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, srv.Shutdown(closing))
	for range at {
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	return err
}

// Closing calls f with a context of 5 seconds that does not end with ctx.
func Closing(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return f(ctx)
}
