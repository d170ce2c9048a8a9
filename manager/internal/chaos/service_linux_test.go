package chaos_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/pipeline/streams"
	"github.com/delegate-io/dlite/manager/redis"
)

// serviceOrders configures a process with a pipeline service.
type serviceOrders struct {
	Socket   string   // path of the socket that it serves
	Managers []string // addresses of the managers
	Database string   // URL of PostgreSQL
	Redis    string   // URL of the Redis for messages
}

// serviceLease is short, so that the messages of a killed service soon go to another one.
const serviceLease = 16 * time.Second

// runService runs a pipeline service like "pipelines server".
func runService(o serviceOrders) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Int("pid", os.Getpid()).Logger()
	accounts := map[string]string{account: secret}
	managers, err := pipeline.NewRemote(pipeline.RemoteConfig{URLs: o.Managers, Accounts: accounts, Logger: log})
	if err != nil {
		return err
	}
	defer managers.Close()
	authenticate, err := manager.Authenticate(accounts)
	if err != nil {
		return err
	}
	s, err := openService(ctx, pipeline.Config{Manager: managers, Database: o.Database, Streams: streams.Redis(redis.Config{URL: o.Redis}), Lease: serviceLease, Logger: log})
	if err != nil {
		return err
	}
	_ = os.Remove(o.Socket) // the socket of a killed process
	l, err := new(net.ListenConfig).Listen(ctx, "unix", o.Socket)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	routes := chi.NewRouter()
	routes.Handle("/api/*", s.Handler(authenticate, manager.AccountOf))
	srv := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return s.Close()
}

// openService opens a service. If PostgreSQL or Redis is down, it waits.
func openService(ctx context.Context, cfg pipeline.Config) (*pipeline.Service, error) {
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		s, err := pipeline.New(once, cfg)
		cancel()
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		cfg.Logger.Warn().Err(err).Msg("PostgreSQL or Redis does not answer")
		pause(ctx, 100*time.Millisecond)
	}
}
