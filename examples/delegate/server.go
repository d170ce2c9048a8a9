package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/examples/internal/program"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/otlp"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	routersecrets "github.com/delegate-io/dlite/router/secrets"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
)

// remoteTimeout limits the sending of the last events at the end.
const remoteTimeout = 5 * time.Second

// serve runs the delegate until ctx or the signals end it: the first signal drains, the second one cancels. It calls
// started, if it is not nil, before it registers.
func serve(ctx context.Context, cfg config, started func(*poller.Poller), signals ...os.Signal) (err error) {
	hidden := secrets.NewSet(cfg.masks(), append(cfg.values(), cfg.Token, cfg.ProxyPassword, cfg.DroneSecret)...)
	remote, closeRemote, err := openRemote(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRemote()) }()
	log, closeLog, err := logger.New(logger.Config{
		Export: remote,
		Level:  cfg.LogLevel, Format: logger.Format(cfg.LogFormat), Mask: hidden,
		EnableFileLogging: cfg.LogToFile, File: cfg.LogFile, MaxSizeMB: cfg.LogMaxSize,
		MaxBackups: cfg.LogBackups, MaxAgeDays: cfg.LogMaxAge, Compress: cfg.LogCompact,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog.Close()) }()

	seen, err := observeDelegate(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, seen.close()) }()
	report, err := openReporter(ctx, cfg, seen, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.host.Close()) }()
	if err := report.prepare(ctx, log, signals...); err != nil {
		if errors.Is(err, errInterrupted) {
			err = nil
		}
		return err
	}

	var waiting forecast
	c, err := newClient(cfg, log, client.WithWaiting(waiting.report))
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	sources, err := openSecrets(ctx, cfg.SecretConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sources.close()) }()
	logs, err := openLogs(cfg, outgoing(c), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLogs(ctx, logs)) }()
	// This comes after all checks of settings, because it may start machines.
	servers, err := openServers(cfg, c, log)
	if err != nil {
		return err
	}
	stages, drivers, err := openStages(ctx, cfg, c, servers.slots[0], servers.openLog(logs), log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStages(ctx, stages)) }() // in case the poller has not closed them

	waiting.use(drivers)

	types := sources.routes.Merge(stages.Routes()).Merge(connectorRoutes(c))
	single, err := openStandalone(ctx, cfg.StandaloneConfig, c, logs, seconds(cfg.CleanupGrace), types, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, single.close(ctx)) }()
	types = types.Merge(single.routes)
	sets, err := openDaemons(cfg, single.programs, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sets.close()) }()
	if sets != nil {
		types = types.Merge(sets.Routes())
	}
	resolver := secrets.ResolverConfig{Providers: sources.providers, Masks: cfg.masks()}
	routes := router.New(types, router.WithNotFound(single.programs), router.WithMiddleware(seen.middleware(types)...),
		router.Standard(log, routersecrets.Resolve(resolver)))
	watched, closeWatched := openWatched(c, resolver)
	defer closeWatched()
	if cfg.trial() {
		watched = nil
	}
	var leaving leaving
	pollers := servers.pollers(cfg, routes, stages, sets, log, signals, watched, poller.WithFilter(leaving.filter))
	seen.watch(pollers, stages, drivers, logs)
	report.worker.Store(&workers{pollers, stages, logs})
	if started != nil {
		started(pollers[0])
	}
	updates := startUpdates(ctx, cfg, c, pollers, func() int { return stages.Stats().Open }, single, &leaving, log)
	report.updates.Store(updates)
	if err = runAll(ctx, cfg.Workers, pollers); errors.Is(err, transaction.ErrLedger) {
		err = fmt.Errorf("LEDGER_DIR: %w", err)
	}
	return updates.close(ctx, err)
}

// closeTimeout limits the cleanup at the end.
const closeTimeout = 2 * time.Minute

func closeStages(ctx context.Context, stages *transaction.Group) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return stages.Close(ctx)
}

// openRemote opens the export of the log. It returns nil if none is configured. Events that the collector did not
// get are no failure of the delegate.
func openRemote(ctx context.Context, cfg config) (io.Writer, func() error, error) {
	if !cfg.LogRemote {
		return nil, func() error { return nil }, nil
	}
	e, err := otlp.Open(ctx, otlp.Config{
		Attributes: map[string]string{"dlite.account": cfg.AccountID, "dlite.delegate": cfg.Name},
	})
	if err != nil {
		return nil, nil, err
	}
	return e, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), remoteTimeout)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
		}
		return nil
	}, nil
}

// newClient adds one setting after the other, so that an error names the wrong setting.
func newClient(cfg config, log zerolog.Logger, more ...client.Option) (c *client.HTTP, err error) {
	if _, err := client.New(cfg.URL, cfg.AccountID, "", client.WithToken("any")); err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	options, secret := append(more, client.WithLogger(log)), cfg.Token
	if !cfg.managed() {
		options, secret = append(options, client.WithToken("none")), "" // this client makes no calls
	}
	if cfg.Protocol == "v2" {
		options = append(options, client.WithProtocol(client.V2))
	}
	if cfg.hasToken() {
		options, secret = append(options, client.WithToken(secret)), ""
	}
	add := func(settings string, more ...client.Option) {
		if err != nil {
			return
		}
		options = append(options, more...)
		if c, err = client.New(cfg.URL, cfg.AccountID, secret, options...); err != nil {
			c, err = nil, fmt.Errorf("%s: %w", settings, err)
		}
	}
	add("TOKEN")
	if cfg.CertsDir != "" {
		add("CERTS_DIR", client.WithCACertsDir(cfg.CertsDir))
	}
	if cfg.ClientCert != "" || cfg.ClientKey != "" {
		add("CLIENT_CERT_FILE, CLIENT_KEY_FILE", client.WithClientCert(cfg.ClientCert, cfg.ClientKey))
	}
	if cfg.ProxyHost != "" {
		add("PROXY_HOST and its companions", client.WithProxy(client.ProxyConfig{
			Scheme: cfg.ProxyScheme, Host: cfg.ProxyHost, Port: cfg.ProxyPort,
			User: cfg.ProxyUser, Password: cfg.ProxyPassword, NoProxy: cfg.NoProxy,
		}))
	}
	return c, err
}

func pollerOptions(cfg config, state string, log zerolog.Logger) []poller.Option {
	options := []poller.Option{
		poller.WithName(cfg.Name), poller.WithTags(cfg.Tags...), poller.WithLogger(log),
		poller.WithRegistration(func(r *client.Registration) { r.Version = program.Version() }),
		poller.WithInterval(time.Duration(cfg.PollInterval) * time.Millisecond),
		poller.WithIdleWait(seconds(cfg.IdleWait)),
	}
	if cfg.DrainTimeout > 0 {
		options = append(options, poller.WithGrace(seconds(cfg.DrainTimeout)))
	}
	if cfg.Resume {
		options = append(options, poller.WithState(filepath.Join(cfg.LedgerDir, state)))
	}
	if cfg.WatchHost {
		options = append(options, poller.WithThresholds(&capacity.Thresholds{CPU: cfg.Threshold, Memory: cfg.Threshold}))
	}
	return options
}
