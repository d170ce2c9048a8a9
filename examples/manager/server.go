package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/service"
	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/logger/otlp"
	"github.com/delegate-io/dlite/logger/telemetry"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/task/stage"
)

// demo is the account that the program creates if none is configured.
const demo = "demo"

// serve runs the manager and the log service until ctx ends.
func serve(ctx context.Context, c *serverCommand, accounts map[string]string, out io.Writer) (err error) {
	log, closeLog, err := logger.New(logger.Config{Level: c.LogLevel, Format: logger.Console})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog.Close()) }()

	made := len(accounts) == 0
	if made {
		if accounts, err = c.demoAccount(); err != nil {
			return err
		}
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	if err := errors.Join(c.checkSettings(), c.SignIn.check(accounts), c.External.check()); err != nil {
		return service.WrongSettings(err)
	}
	report, err := openReporter(ctx, c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.host.Close()) }()
	// The program takes the ports after it has checked every setting.
	at, err := c.Open(ctx, log)
	if err != nil {
		return err
	}
	url := cmp.Or(c.PublicURL, at.URL())
	provider, err := c.SignIn.provider(c.OIDCSecret, cmp.Or(c.SignIn.PageURL, url+pagePath+"/"))
	if err != nil {
		return errors.Join(err, at.Close())
	}
	ends := stageEnds{now: time.Now}
	logs, signer, err := openLogs(ctx, c, accounts, keys, url, &ends, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	tracer, closeTraces, err := otlp.Traces(ctx, "dlite-manager", log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, serving.Closing(ctx, closeTraces)) }()
	store, err := c.open(ctx, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	m, err := manager.New(manager.Config{
		Store: store, StoreKeys: keys, Accounts: accounts, Logger: log, TracerProvider: tracer,
		AccountBudget: c.AccountBudget.Budget, TotalBudget: c.TotalBudget.Budget,
		MinDelegateVersion: c.MinDelegateVersion,
		PerpetualLease:     c.PerpetualLease,
		Retention:          c.Retention, MaxFinished: c.MaxFinished, MaxFinishedBytes: int(c.MaxFinishedBytes),
		LogURLs: serving.List(c.LogURLs),
		Logs: func(account, id, prefix string) *stage.LogConfig {
			return &stage.LogConfig{AccountID: account, URL: url, Token: signer.Issue(logservice.Grant{
				Account: account, Stage: id, Prefix: prefix, Expires: time.Now().Add(logTokenTTL),
			})}
		},
	})
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	ends.Store(m)
	pipelines, err := openPipelines(ctx, c, m, logs, keys, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	if pipelines != nil {
		defer func() { err = errors.Join(err, pipelines.Close()) }()
	}

	_, _ = fmt.Fprintf(out, "serving at %s\n%s", url, at) // a closed output must not end the manager
	if made {
		if err := introduce(out, accounts, url); err != nil {
			return errors.Join(err, at.Close())
		}
	}
	metrics, err := serveMetrics(ctx, c, m, pipelines, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, serving.Closing(ctx, metrics.Close)) }()
	endExternal, err := serveExternalMetrics(ctx, &c.External, m, out, log)
	if err != nil {
		return errors.Join(err, at.Close())
	}
	defer func() { err = errors.Join(err, serving.Closing(ctx, endExternal)) }()
	routes := chi.NewRouter()
	telemetry.Health(routes, m.LiveChecks(), m.ReadyChecks()) // for load balancers
	routePipelines(ctx, routes, m, pipelines)
	routes.Handle("/api/*", m)
	routes.Mount(pagePath, c.page(routes, logs, keys, m, provider))
	routes.Get("/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, pagePath+"/", http.StatusTemporaryRedirect)
	})
	routes.Handle("/*", logs)
	report.serving(url, pipelines != nil)
	return c.Serve(ctx, at, routes, func() error { return errors.Join(m.Close(), logs.Close()) }) // long polls end
}

// checkSettings checks the settings that no other part checks before the port is taken.
func (c *serverCommand) checkSettings() error {
	switch {
	case c.PublicURL != "" && !strings.HasPrefix(c.PublicURL, "http://") && !strings.HasPrefix(c.PublicURL, "https://"):
		return fmt.Errorf("PUBLIC_URL: it must begin with http:// or https://: did you mean https://%s?", c.PublicURL)
	case c.OperatorToken != "" && len(c.OperatorToken) < minOperatorToken:
		return fmt.Errorf("OPERATOR_TOKEN: it is too short: it needs %d characters or more, like those that `openssl rand -hex 16` prints", minOperatorToken)
	case slices.ContainsFunc(serving.List(c.LogURLs), func(u string) bool { return !strings.Contains(u, "://") }):
		return errors.New("LOG_URLS: each address must begin with http:// or https://")
	case c.Retention < 0:
		return errors.New("RETENTION: it must not be negative; 0 means 1h")
	case c.PerpetualLease != 0 && (c.PerpetualLease < minLease || c.PerpetualLease > maxLease):
		return fmt.Errorf("PERPETUAL_LEASE: it is %s; it must be from 1s to 1h, such as 30s; 0 means 30s", c.PerpetualLease)
	case c.MaxFinished < 0:
		return errors.New("MAX_FINISHED: it must not be negative; 0 means 10000")
	case c.LogsMaxAgeDays < 0:
		return errors.New("LOGS_MAX_AGE_DAYS: it must be 0 or more")
	case !c.inMemory() && !c.onRedis() && c.Store != "sqlite":
		return fmt.Errorf("STORE: it is %q; it must be sqlite, memory, or a URL that begins with redis://", c.Store)
	case c.onRedis() && c.LogsArchive == "":
		return errMissingArchive
	}
	return errors.Join(c.Check(), c.Pipelines.Check())
}

var errMissingArchive = errors.New("LOGS_ARCHIVE is missing: managers on one Redis need a bucket for complete logs that all of them reach")

// logTokenTTL is the longest time for which a stage may write its logs. It starts with the submission.
const logTokenTTL = 7 * 24 * time.Hour

// openLogs opens the log service, and the signer of its tokens.
func openLogs(
	ctx context.Context, c *serverCommand, accounts map[string]string, keys [][]byte, url string, ends *stageEnds, log zerolog.Logger,
) (_ *logservice.Server, _ *logservice.Signer, err error) {
	cfg := logservice.Config{
		PublicURL: url, Logger: log,
		Dir: c.LogsDir, Archive: c.LogsArchive, MaxAge: time.Duration(c.LogsMaxAgeDays) * 24 * time.Hour,
	}
	switch {
	case c.onRedis():
		cfg.Dir = ""
		if cfg.Key, err = c.logKey(keys); err != nil {
			return nil, nil, err
		}
		if cfg.Streams, err = c.streams(ctx, log); err != nil {
			return nil, nil, err
		}
	case cfg.Dir == "" && !c.inMemory():
		dir, err := c.dir()
		if err != nil {
			return nil, nil, err
		}
		cfg.Dir = filepath.Join(dir, "logs")
	}
	switch {
	case cfg.Key != nil:
	case cfg.Dir != "":
		if cfg.Key, err = logservice.LoadKey(filepath.Join(cfg.Dir, "key")); err != nil {
			return nil, nil, err
		}
	default:
		cfg.Key = make([]byte, 32)
		_, _ = io.ReadFull(rand.Reader, cfg.Key) // never fails
	}
	signer := logservice.NewSigner(cfg.Key)
	cfg.Authorize = authorize(accounts, signer, ends)
	logs, err := logservice.New(cfg)
	return logs, signer, err
}

// demoAccount returns the account for first experiments. It stays the same as long as the data directory exists.
// With STORE=memory every start creates another one.
func (o *storeOptions) demoAccount() (map[string]string, error) {
	if o.inMemory() {
		return map[string]string{demo: random()}, nil
	}
	if o.onRedis() {
		return nil, errors.New("ACCOUNTS is missing: managers on one Redis serve the same accounts")
	}
	dir, err := o.dir()
	if err != nil {
		return nil, err
	}
	secret, err := logservice.LoadKey(filepath.Join(dir, "demo-account"))
	if err != nil {
		return nil, err
	}
	return map[string]string{demo: hex.EncodeToString(secret[:16])}, nil
}

// introduceFor is the lifetime of the token that introduce prints.
const introduceFor = 24 * time.Hour

// introduce prints the settings that a delegate and a submitter need for the demo account.
func introduce(out io.Writer, accounts map[string]string, url string) error {
	t, err := issue(accounts, demo, introduceFor, "")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `
ACCOUNTS is not set, so the manager made the account %[1]s for trying things out.
The file config.env of a delegate:

ACCOUNT_ID="%[1]s"
TOKEN="%[2]s"
URL="%[3]s"

A token for the page %[3]s/ui/ and the API, valid for %[5]s ("manager token %[1]s" prints another one), and calls to try:

API_TOKEN='%[4]s'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/delegates?accountId=%[1]s'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/stages?accountId=%[1]s' -d '{"id":"build-1","steps":[
  {"id":"compile","data":{"run":{"entrypoint":["sh","-ec"],"commands":["echo compiling; sleep 2; echo done"]}}},
  {"id":"test","data":{"run":{"entrypoint":["sh","-ec"],"commands":["echo testing"]}}}]}'
curl -H "Authorization: Bearer $API_TOKEN" '%[3]s/api/stages/build-1?accountId=%[1]s&wait=30'
curl -H "Authorization: Bearer $API_TOKEN" -X POST '%[3]s/api/stages/build-1/abort?accountId=%[1]s'
curl -H "X-Harness-Token: $API_TOKEN" '%[3]s/blob?accountID=%[1]s&key=build-1/compile&format=text'

`, demo, accounts[demo], url, t, introduceFor)
	return err
}

// issue returns a token for an account. An empty role means a token that permits everything.
func issue(accounts map[string]string, account string, ttl time.Duration, role string) (string, error) {
	text, ok := accounts[account]
	if !ok {
		return "", fmt.Errorf("there is no account %q: ACCOUNTS names the accounts that the manager serves", account)
	}
	secret, err := token.ParseSecret(text)
	if err != nil {
		return "", err
	}
	return secret.IssueRole(account, role, time.Now(), ttl)
}

// random returns a secret in the form of an account's secret: 16 bytes in hexadecimal.
func random() string {
	b := make([]byte, 16)
	_, _ = io.ReadFull(rand.Reader, b) // never fails
	return hex.EncodeToString(b)
}
