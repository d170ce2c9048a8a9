package main

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
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
)

// clientLimits bounds what clients of the API and of the log service can occupy. 0 means no limit.
type clientLimits struct {
	Connections int
	PerAddress  int
	PerToken    int
}

func (l *clientLimits) register(fs *flag.FlagSet) {
	fs.IntVar(&l.Connections, "max-connections", 10_000, "connections at once; more are closed; 0 is no limit")
	fs.IntVar(&l.PerAddress, "max-connections-per-address", 2500, "connections at once from one address; raise it to max-connections if all clients come through one proxy; 0 is no limit")
	fs.IntVar(&l.PerToken, "max-requests-per-token", 1000, "requests at once with one token, held ones too; more are answered 429; 0 is no limit")
}

func (l *clientLimits) check() error {
	for name, n := range map[string]int{
		"MAX_CONNECTIONS": l.Connections, "MAX_CONNECTIONS_PER_ADDRESS": l.PerAddress, "MAX_REQUESTS_PER_TOKEN": l.PerToken,
	} {
		if n < 0 {
			return fmt.Errorf("%s: it must be 0 or more", name)
		}
	}
	return nil
}

// listen serves at all ports until ctx ends. Then it waits for running calls, except for long polls, which it ends.
func listen(ctx context.Context, c *serverCommand, at ports, h http.Handler, m *manager.Manager, logs *logservice.Server) error {
	srv := httpserver.New(httpserver.LimitRequests(c.PerToken, "Authorization", logheader.Token)(h))
	limit := httpserver.LimitConnections(c.Connections, c.PerAddress)
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
	err := m.Close() // long polls end
	err = errors.Join(err, logs.Close())
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
