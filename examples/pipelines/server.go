package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/peterbourgon/ff/v3/ffcli"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// defaultMetrics is the address of metrics and health. The delegate uses port 3000, the manager 3001.
const defaultMetrics = "127.0.0.1:3002"

// serverCommand is the pipeline service in its own process, between PostgreSQL and the managers.
type serverCommand struct {
	serving.Options

	Managers   managerOptions
	Pipelines  serving.Pipelines
	accounts   string
	database   string
	webhookKey string
}

// managerOptions are the settings of the calls of the managers.
type managerOptions struct {
	URLs            string
	CertsDir        string
	ClientCert, Key string
}

func (o *managerOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.URLs, "manager-url", "", "comma-separated addresses of the managers of one store, or of a load balancer; a call that fails at one goes to the next")
	fs.StringVar(&o.CertsDir, "certs-dir", "", "folder of additional CA certificates for the managers")
	fs.StringVar(&o.ClientCert, "client-cert-file", "", "certificate for managers that ask their clients for one")
	fs.StringVar(&o.Key, "client-key-file", "", "the certificate's key file")
}

// open returns the managers. It makes no call.
func (o *managerOptions) open(accounts map[string]string, log zerolog.Logger) (*pipeline.Remote, error) {
	urls := serving.List(o.URLs)
	if len(urls) == 0 {
		return nil, errors.New("MANAGER_URL is missing: set the address of the manager, such as https://manager.example.com:3460")
	}
	if (o.ClientCert == "") != (o.Key == "") {
		return nil, errors.New("CLIENT_CERT_FILE and CLIENT_KEY_FILE: set both or none")
	}
	var options []client.Option
	if o.CertsDir != "" {
		options = append(options, client.WithCACertsDir(o.CertsDir))
	}
	if o.ClientCert != "" {
		options = append(options, client.WithClientCert(o.ClientCert, o.Key))
	}
	for account, secret := range accounts { // the client of a delegate brings the certificates and the proxy
		c, err := client.New(urls[0], account, secret, append(options, client.WithLogger(log))...)
		if err != nil {
			return nil, fmt.Errorf("MANAGER_URL, CERTS_DIR, CLIENT_CERT_FILE: %w", err)
		}
		r, err := pipeline.NewRemote(pipeline.RemoteConfig{URLs: urls, Accounts: accounts, Transport: c.Transport(), Logger: log})
		if err != nil {
			return nil, fmt.Errorf("MANAGER_URL: %w", err)
		}
		return r, nil
	}
	return nil, errors.New("ACCOUNTS is missing: set the same accounts as at the managers, id=secret,id=secret")
}

func newServerCommand() *ffcli.Command {
	c := &serverCommand{}
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	file := fs.String(program.EnvFileFlag, "", "file with settings, NAME=value a line")
	c.Managers.register(fs)
	c.Register(fs, "127.0.0.1:3470", "the API", defaultMetrics)
	c.Pipelines.Register(fs)
	return &ffcli.Command{
		Name: "server", ShortUsage: "pipelines server [flags]", ShortHelp: "serve pipelines beside managers, until interrupted", FlagSet: fs,
		LongHelp: "Every flag is a variable of the environment too: --manager-url is MANAGER_URL. The secret settings ACCOUNTS, PIPELINES_DATABASE,\n" +
			"PIPELINES_REDIS and STORE_KEY have no flag. docs/running-pipelines.md describes them.",
		Exec: func(ctx context.Context, args []string) error {
			if _, err := program.Arguments(fs, args); err != nil {
				return err
			}
			secrets := map[string]*string{"ACCOUNTS": &c.accounts, "PIPELINES_DATABASE": &c.database, "PIPELINES_REDIS": &c.Pipelines.Redis, "STORE_KEY": &c.webhookKey}
			if err := program.Resolve(fs, *file, secrets, nil, `"pipelines server --help"`); err != nil {
				return exitError{err, 2}
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return c.serve(ctx, os.Stdout)
		},
	}
}

// check checks the settings that no other part checks before the ports are taken.
func (c *serverCommand) check() error {
	switch {
	case c.database == "":
		return errors.New("PIPELINES_DATABASE is missing: set the postgres:// URL that the services share, or a file for a single service")
	case strings.Contains(c.database, "://") && !strings.HasPrefix(c.database, "postgres://") && !strings.HasPrefix(c.database, "postgresql://"):
		return errors.New("PIPELINES_DATABASE: the URL must begin with postgres://")
	}
	return errors.Join(c.Check(), c.Pipelines.Check())
}

// checkManagerFor bounds the first call of the managers.
const checkManagerFor = 15 * time.Second

// checkManager calls the managers. A manager that refuses the calls is an error. One that does not answer may be starting.
func checkManager(ctx context.Context, m *pipeline.Remote, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, checkManagerFor)
	defer cancel()
	err := m.Check(ctx)
	if errors.Is(err, manager.ErrUnavailable) {
		log.Warn().Err(err).Msg("no manager answers: runs wait until one does; check MANAGER_URL, CERTS_DIR and the proxy")
		return nil
	}
	if err != nil {
		return fmt.Errorf("the manager at MANAGER_URL refuses the accounts of ACCOUNTS: %w", err)
	}
	return nil
}

// serve runs the service until ctx ends.
func (c *serverCommand) serve(ctx context.Context, out io.Writer) (err error) {
	log, closeLog, err := logger.New(logger.Config{Level: c.LogLevel, Format: logger.Console})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog.Close()) }()
	accounts, err := serving.ParseAccounts(c.accounts)
	if err != nil {
		return err
	}
	keys, err := serving.ParseKeys(c.webhookKey)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	cfg := pipeline.Config{Database: c.database, Keys: keys, Logger: log}
	if err := c.Pipelines.Complete(&cfg); err != nil {
		return err
	}
	managers, err := c.Managers.open(accounts, log)
	if err != nil {
		return err
	}
	defer managers.Close()
	cfg.Manager, cfg.Logs = managers, managers
	authenticate, err := manager.Authenticate(accounts)
	if err != nil {
		return err
	}
	if err := checkManager(ctx, managers, log); err != nil {
		return err
	}
	at, err := c.Open(ctx, log)
	if err != nil {
		return err
	}
	service, err := pipeline.New(ctx, cfg)
	if err != nil {
		return errors.Join(fmt.Errorf("PIPELINES_DATABASE, PIPELINES_REDIS: %w", err), at.Close())
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	// Without a manager the service still accepts runs, so only the database and Redis count. Their errors contain addresses.
	ready := telemetry.Checks{{Name: "database", Run: func(ctx context.Context) error {
		if service.Ready(ctx) != nil {
			return errors.New("the database, or the Redis of messages, does not answer")
		}
		return nil
	}}}
	metrics, err := c.metrics(ctx, service, ready, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, serving.Closing(ctx, metrics.Close)) }()
	_, _ = fmt.Fprintf(out, "serving at %s\n%s", at.URL(), at) // a closed output must not end the service
	routes := chi.NewRouter()
	telemetry.Health(routes, nil, ready) // for load balancers
	serving.RoutePipelines(ctx, routes, service.Handler(authenticate, manager.AccountOf), service.Hooks())
	return c.Serve(ctx, at, routes, func() error { return nil })
}

// metrics serves metrics and health on another address than the API, because the metrics name all accounts.
func (c *serverCommand) metrics(ctx context.Context, s *pipeline.Service, ready telemetry.Checks, log zerolog.Logger) (*telemetry.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Metrics(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return telemetry.Listen(ctx, c.HTTPBind, defaultMetrics, telemetry.Handler(registry, nil, ready), log)
}
