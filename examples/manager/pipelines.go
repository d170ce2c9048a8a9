package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// pipelineOptions are the settings of the pipeline service.
type pipelineOptions struct {
	Settings  string
	Templates string
	Retention time.Duration
}

func (o *pipelineOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.Settings, "pipelines-settings", "", "YAML file with connectors, step types, infrastructure and secrets of pipelines (docs/pipelines.md)")
	fs.StringVar(&o.Templates, "pipelines-templates", "", "directory with the templates of pipelines")
	fs.DurationVar(&o.Retention, "pipelines-retention", 90*24*time.Hour, "how long ended runs are kept; 0 is 90 days")
}

// pipelinesOff as PIPELINES_DATABASE turns the service off.
const pipelinesOff = "off"

// database returns where the runs are kept: PIPELINES_DATABASE, or a file beside the database of the manager. It is
// empty if the service is off.
func (c *serverCommand) pipelineDatabase() (string, error) {
	switch {
	case c.PipelinesDatabase == pipelinesOff:
		return "", nil
	case c.PipelinesDatabase != "":
		return c.PipelinesDatabase, nil
	case c.inMemory(), c.onRedis():
		return "", nil
	}
	dir, err := c.dir()
	return filepath.Join(dir, "pipelines.db"), err
}

// openPipelines starts the pipeline service, or returns nil if it is off.
func openPipelines(ctx context.Context, c *serverCommand, m *manager.Manager, keys [][]byte, log zerolog.Logger) (*pipeline.Service, error) {
	database, err := c.pipelineDatabase()
	if err != nil {
		return nil, err
	}
	if database == "" {
		log.Info().Msg("the pipeline service is off: with STORE=memory or Redis, set PIPELINES_DATABASE to a file or a postgres:// URL")
		return nil, nil
	}
	cfg := pipeline.Config{Manager: m, Database: database, Keys: keys, Retention: c.Pipelines.Retention, Logger: log}
	if file := c.Pipelines.Settings; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("PIPELINES_SETTINGS: %w", err)
		}
		if cfg.Settings, err = pipeline.ReadSettings(text); err != nil {
			return nil, fmt.Errorf("PIPELINES_SETTINGS: %w", err)
		}
	}
	if dir := c.Pipelines.Templates; dir != "" {
		if cfg.Templates, err = pipeline.Templates(os.DirFS(dir)); err != nil {
			return nil, fmt.Errorf("PIPELINES_TEMPLATES: %w", err)
		}
	}
	return pipeline.New(ctx, cfg)
}

func (o *pipelineOptions) check() error {
	if o.Retention < 0 {
		return errors.New("PIPELINES_RETENTION: it must not be negative; 0 means 90 days")
	}
	return nil
}

// pipelinePaths are the paths of the pipeline service that need a token.
func pipelinePaths() []string {
	return []string{"/api/runs*", "/api/lint", "/api/pipelines*", "/api/triggers*"}
}

// routePipelines adds the API of pipelines to the manager's.
func routePipelines(routes chi.Router, m *manager.Manager, s *pipeline.Service) {
	if s == nil {
		off := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_msg":"the pipeline service of this manager is off: set PIPELINES_DATABASE"}`))
		}
		for _, path := range append(pipelinePaths(), "/api/hooks/*") {
			routes.HandleFunc(path, off)
		}
		return
	}
	h := s.Handler(m.Authenticate, manager.AccountOf)
	for _, path := range pipelinePaths() {
		routes.Handle(path, h)
	}
	routes.Handle("/api/hooks/*", s.Hooks()) // webhooks have no token
}
