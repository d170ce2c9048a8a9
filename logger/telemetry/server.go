package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/internal/httpserver"
)

// scrapeTimeout limits a scrape: scrapes must not accumulate while a disk does not
// answer.
const scrapeTimeout = 10 * time.Second

// maxConnections bounds the connections of a server.
const maxConnections = 256

// Handler serves GET /metrics from gatherer, GET /healthz from live and GET /readyz
// from ready. It does not authenticate requests. The answers contain no secrets, but
// the metrics of a manager contain its account ids.
func Handler(gatherer prometheus.Gatherer, live, ready Checks) http.Handler {
	r := chi.NewRouter()
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: scrapeTimeout,
		// The failure of one collector must not hide the other metrics.
		ErrorHandling: promhttp.ContinueOnError,
	}))
	Health(r, live, ready)
	return r
}

// Health adds the endpoints /healthz and /readyz to a router.
func Health(r chi.Router, live, ready Checks) {
	for path, checks := range map[string]Checks{"/healthz": live, "/readyz": ready} {
		r.Method(http.MethodGet, path, checks.handler())
		r.Method(http.MethodHead, path, checks.handler())
	}
}

// Server is an HTTP server. [Server.Close] stops it.
type Server struct {
	server *http.Server
	addr   net.Addr
	done   chan error
}

// Listen serves handler at address, such as ":3000". Port 0 selects a free port. It
// returns an error if it cannot listen. The end of ctx does not stop the server.
//
// The address "off" means no server: Listen returns nil. An empty address means the
// address fallback. If another program uses the fallback, Listen logs a warning and
// returns a nil server.
//
// The server refuses requests of web pages with status 403: at a loopback address, those
// whose Host is not localhost or a loopback address; at every address, those with an
// unsafe method from another origin. It has at most 256 connections, and ends slow and
// idle ones.
func Listen(ctx context.Context, address, fallback string, handler http.Handler, log zerolog.Logger) (*Server, error) {
	if address == "off" {
		return nil, nil //nolint:nilnil // a nil server can be closed
	}
	s, err := listen(ctx, cmp.Or(address, fallback), handler)
	switch {
	case err != nil && address == "":
		log.Warn().Err(err).Msg("cannot serve metrics and health checks: set HTTP_BIND to another address, or to off")
		return nil, nil //nolint:nilnil // as above
	case err != nil:
		return nil, err
	}
	log.Info().Stringer("address", s.addr).Msg("serving metrics and health checks")
	return s, nil
}

func listen(ctx context.Context, address string, handler http.Handler) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for metrics and health: %w", err)
	}
	s := &Server{
		server: httpserver.New(httpserver.RefuseWebPages(handler)),
		addr:   l.Addr(), done: make(chan error, 1),
	}
	go func() { s.done <- s.server.Serve(httpserver.LimitConnections(maxConnections, 0)(l)) }()
	return s, nil
}

// Addr returns the address at which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Close stops the server. It waits for running requests until ctx ends, and then
// closes their connections. Close must be called once. Close of nil does nothing.
func (s *Server) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
