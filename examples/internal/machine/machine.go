package machine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/web"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/capacity"
	"github.com/delegate-io/dlite/task/stage"
)

// Account is the only account.
const Account = "local"

// Config configures a Machine. Only Dir is required.
type Config struct {
	// Dir is an empty directory for everything that the parts keep. The caller removes it.
	Dir string
	// Settings are those of the pipeline service. All stages run on this machine, whatever
	// infrastructure they name, and all secrets are those of Secrets.
	Settings pipeline.Settings
	// Templates returns the text of a template.
	Templates func(ref, version string) (pipeline.Source, bool)
	// Secrets are the values of secrets by their ids.
	Secrets map[string]string
	// Stages is how many stages run at a time. Defaults to 2.
	Stages int
	// Thresholds refuse stages while this machine is busy. Nil refuses none.
	Thresholds *capacity.Thresholds
	// Routes are tasks that the delegate takes besides stages, and Options further options of its poller.
	Routes  router.RouteMap
	Options []poller.Option
	// Trusted lets host steps reach everything that the user can reach.
	Trusted bool
	// Builtins are the programs that this program contains for steps, see host.Config.
	Builtins map[string][]string
	Log      zerolog.Logger
}

// Machine runs pipelines on this machine.
type Machine struct {
	// URL is the address of the manager and the log service. The page is below it, at /ui/.
	URL string
	// Pipelines is the pipeline service.
	Pipelines *pipeline.Service
	// Logs has the logs of the steps.
	Logs *logservice.Server

	secret   string // of Account
	manager  *manager.Manager
	http     *http.Server
	served   chan error
	delegate *delegate
}

// Start starts the parts.
func Start(ctx context.Context, cfg Config) (_ *Machine, err error) {
	m := &Machine{served: make(chan error, 1)}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.URL, m.secret = "http://"+listener.Addr().String(), random()
	logToken := random()
	if m.Logs, err = logservice.New(logservice.Config{Authorize: m.mayAccess(logToken)}); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	m.manager, err = manager.New(manager.Config{
		Accounts: map[string]string{Account: m.secret}, Logger: cfg.Log,
		Logs: func(account, _, _ string) *stage.LogConfig {
			return &stage.LogConfig{AccountID: account, URL: m.URL, Token: logToken}
		},
	})
	if err != nil {
		return nil, errors.Join(err, m.Logs.Close(), listener.Close())
	}
	m.Pipelines, err = pipeline.New(ctx, pipeline.Config{
		Manager: m.manager, Logs: m.Logs, Database: filepath.Join(cfg.Dir, "pipelines.db"), Settings: onThisMachine(cfg.Settings), Templates: cfg.Templates, Logger: cfg.Log,
	})
	if err != nil {
		return nil, errors.Join(err, m.manager.Close(), m.Logs.Close(), listener.Close())
	}
	m.http = httpserver.New(m.routes(ctx))
	go func() { m.served <- m.http.Serve(listener) }()
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close(ctx))
		}
	}()
	m.delegate, err = startDelegate(ctx, cfg, m.URL, m.secret)
	return m, err
}

// routes returns the handler of the manager, the pipeline service, the log service and the page.
func (m *Machine) routes(ctx context.Context) http.Handler {
	routes := chi.NewRouter()
	serving.RoutePipelines(ctx, routes, m.Pipelines.Handler(m.manager.Authenticate, manager.AccountOf), m.Pipelines.Hooks())
	routes.Handle("/api/*", m.manager)
	page := web.New(web.Config{API: routes, Logs: m.Logs})
	routes.Mount("/ui", page)
	routes.Handle("/*", m.Logs)
	return routes
}

// mayAccess permits stages to write logs, and callers of the API to read them.
func (m *Machine) mayAccess(stages string) func(logservice.Access) bool {
	ofStages := logservice.Tokens(map[string]string{Account: stages})
	return func(a logservice.Access) bool {
		if ofStages(a) {
			return true
		}
		secret, err := token.ParseSecret(m.secret)
		if err != nil {
			return false
		}
		claims, err := secret.Verify(a.Token, time.Now())
		return err == nil && claims.Account == a.Account && !a.Write
	}
}

// Token returns a token of Account for the API and the page.
func (m *Machine) Token(lifetime time.Duration) (string, error) {
	secret, err := token.ParseSecret(m.secret)
	if err != nil {
		return "", err
	}
	return secret.Issue(Account, time.Now(), lifetime)
}

// RoleToken returns a token of Account with a role.
func (m *Machine) RoleToken(account string, role api.Role, lifetime time.Duration) (string, error) {
	return m.manager.Token(account, role, lifetime)
}

// secretScheme is the scheme of the secrets in Config.Secrets.
const secretScheme = "given"

// onThisMachine returns the settings with every infrastructure on this machine, and all secrets from
// Config.Secrets.
func onThisMachine(s pipeline.Settings) pipeline.Settings {
	s.Infrastructure = map[string]pipeline.Infrastructure{}
	for _, kind := range []string{"KubernetesDirect", "VM", "Docker", "Cloud"} {
		s.Infrastructure[kind] = pipeline.Infrastructure{Driver: "local", AnyPlatform: true}
	}
	s.Secrets, s.SecretURL = nil, secretScheme+"://{id}"
	return s
}

// given provides secrets by their ids.
type given map[string]string

// Fetch returns a secret.
func (g given) Fetch(_ context.Context, ref *url.URL) (string, error) {
	if value, ok := g[ref.Host]; ok {
		return value, nil
	}
	return "", fmt.Errorf("the secret %q was not given: add it to the file of --secret-file: %w", ref.Host, secrets.ErrNotFound)
}

// Close ends all parts: the delegate when its stages have ended, or at once when ctx ends.
func (m *Machine) Close(ctx context.Context) error {
	var err error
	if m.delegate != nil {
		err = m.delegate.close(ctx)
	}
	if m.Pipelines != nil {
		err = errors.Join(err, m.Pipelines.Close())
	}
	err = errors.Join(err, m.manager.Close(), m.Logs.Close())
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, m.http.Shutdown(closing))
	if served := <-m.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// random returns a secret in the form of an account's secret: 16 bytes in hexadecimal.
func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
