package serving

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/delegate-io/dlite/manager/pipeline"
	"github.com/delegate-io/dlite/manager/pipeline/streams"
	"github.com/delegate-io/dlite/manager/redis"
)

// Pipelines are the settings of a pipeline service.
type Pipelines struct {
	Settings  string
	Templates string
	Retention time.Duration
	MaxBytes  int64
	// Redis carries messages. It has no flag, because its URL may contain a password.
	Redis string
}

// Register adds the flags.
func (o *Pipelines) Register(fs *flag.FlagSet) {
	fs.StringVar(&o.Settings, "pipelines-settings", "", "YAML file with connectors, step types, infrastructure and secrets of pipelines (docs/pipelines.md)")
	fs.StringVar(&o.Templates, "pipelines-templates", "", "directory with the templates of pipelines")
	fs.DurationVar(&o.Retention, "pipelines-retention", 90*24*time.Hour, "how long ended runs, and ended stages without a run, are kept; 0 is 90 days")
	fs.Int64Var(&o.MaxBytes, "pipelines-max-bytes", 10<<30, "largest size of ended runs and stages, in bytes without indexes: the oldest are removed; 0 is 10 GiB, -1 is no bound")
}

// Check checks the values.
func (o *Pipelines) Check() error {
	if o.Retention < 0 {
		return errors.New("PIPELINES_RETENTION: it must not be negative; 0 means 90 days")
	}
	return nil
}

// Complete reads the files and completes the configuration of a service.
func (o *Pipelines) Complete(cfg *pipeline.Config) (err error) {
	cfg.Retention, cfg.MaxHistory = o.Retention, o.MaxBytes
	if o.Redis != "" {
		messages := redis.Config{URL: o.Redis, Logger: cfg.Logger}
		if cfg.Database != "" && !strings.HasPrefix(cfg.Database, "postgres") {
			return errors.New("PIPELINES_REDIS: several services need a PostgreSQL: set PIPELINES_DATABASE to its postgres:// URL, or remove PIPELINES_REDIS")
		}
		client, err := messages.NewClient()
		if err != nil {
			return fmt.Errorf("PIPELINES_REDIS: %w", err)
		}
		if err := client.Close(); err != nil {
			return fmt.Errorf("PIPELINES_REDIS: %w", err)
		}
		cfg.Streams = streams.Redis(messages)
	}
	if o.Settings != "" {
		text, err := os.ReadFile(o.Settings)
		if err != nil {
			return fmt.Errorf("PIPELINES_SETTINGS: %w", err)
		}
		if cfg.Settings, err = pipeline.ReadSettings(text); err != nil {
			return fmt.Errorf("PIPELINES_SETTINGS: %w", err)
		}
	}
	if o.Templates != "" {
		if cfg.Templates, err = pipeline.Templates(os.DirFS(o.Templates)); err != nil {
			return fmt.Errorf("PIPELINES_TEMPLATES: %w", err)
		}
	}
	return nil
}

// RoutePipelines adds the API of pipelines, and the webhooks, which have no token. When ctx ends, so do the calls that
// only read, because some of them last until the client leaves.
func RoutePipelines(ctx context.Context, routes chi.Router, api, hooks http.Handler) {
	routes = routes.With(endReads(ctx))
	for _, path := range []string{"/api/runs*", "/api/run-events", "/api/lint", "/api/pipelines*", "/api/triggers*", "/api/history*", "/api/letters*"} {
		routes.Handle(path, api)
	}
	routes.Handle("/api/hooks/*", hooks)
}

func endReads(ctx context.Context) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				call, cancel := context.WithCancel(r.Context())
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				r = r.WithContext(call)
			}
			next.ServeHTTP(w, r)
		})
	}
}
