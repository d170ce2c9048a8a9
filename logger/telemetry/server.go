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
)

// DefaultPort is where metrics and health are served when nobody says.
const DefaultPort = "3000"

// Off is the setting that serves neither.
const Off = "off"

// scrapeTimeout bounds a scrape: a disk that does not answer must not gather
// scrapes that wait for it.
const scrapeTimeout = 10 * time.Second

// Handler serves GET /metrics from gatherer, GET /healthz from live and GET
// /readyz from ready. Nothing is authenticated: nothing of it is secret, but a
// manager's metrics name its accounts.
func Handler(gatherer prometheus.Gatherer, live, ready Checks) http.Handler {
	r := chi.NewRouter()
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: scrapeTimeout,
		// What one collector cannot tell must not hide the rest.
		ErrorHandling: promhttp.ContinueOnError,
	}))
	Health(r, live, ready)
	return r
}

// Health adds the two health endpoints to a router.
func Health(r chi.Router, live, ready Checks) {
	for path, checks := range map[string]Checks{"/healthz": live, "/readyz": ready} {
		r.Method(http.MethodGet, path, checks.handler())
		r.Method(http.MethodHead, path, checks.handler())
	}
}

// Server serves until it is closed.
type Server struct {
	server http.Server
	addr   net.Addr
	done   chan error
}

// Listen serves handler at address, such as ":3000"; port 0 is a free one. It
// fails when the address cannot be had. The server outlives ctx.
func Listen(ctx context.Context, address string, handler http.Handler) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for metrics and health: %w", err)
	}
	s := &Server{
		server: http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: 64 << 10,
		},
		addr: l.Addr(), done: make(chan error, 1),
	}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

// ListenAt is [Listen] for a program's setting: an address, [Off], for which the
// server is nil, or empty for the fallback. A fallback that somebody else has is a
// warning, not an error: two programs on a machine have the same one.
func ListenAt(ctx context.Context, setting, fallback string, handler http.Handler, log zerolog.Logger) (*Server, error) {
	if setting == Off {
		return nil, nil //nolint:nilnil // a nil server can be closed
	}
	s, err := Listen(ctx, cmp.Or(setting, fallback), handler)
	switch {
	case err != nil && setting == "":
		log.Warn().Err(err).Msg("no metrics and no health; HTTP_BIND sets another address, or off")
		return nil, nil //nolint:nilnil // as above
	case err != nil:
		return nil, err
	}
	log.Info().Stringer("address", s.addr).Msg("serving metrics and health")
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Close ends the server. Calls under way are finished until ctx ends. It must be
// called once. Closing nil does nothing.
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
