package main

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/logservice"
	"github.com/delegate-io/dlite/manager/pipeline"
)

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
func openPipelines(
	ctx context.Context, c *serverCommand, m *manager.Manager, logs *logservice.Server, keys [][]byte, log zerolog.Logger,
) (*pipeline.Service, error) {
	database, err := c.pipelineDatabase()
	if err != nil {
		return nil, err
	}
	if database == "" {
		log.Info().Msg("the pipeline service is off: with STORE=memory or Redis, set PIPELINES_DATABASE to a file or a postgres:// URL")
		return nil, nil
	}
	cfg := pipeline.Config{Manager: m, Logs: logs, Database: database, Keys: keys, PageURL: c.PublicURL, Logger: log}
	c.Pipelines.Redis = c.PipelinesRedis
	if err := c.Pipelines.Complete(&cfg); err != nil {
		return nil, err
	}
	return pipeline.New(ctx, cfg)
}

// routePipelines adds the API of pipelines to the manager's.
func routePipelines(ctx context.Context, routes chi.Router, m *manager.Manager, s *pipeline.Service) {
	if s == nil {
		off := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_msg":"the pipeline service of this manager is off: set PIPELINES_DATABASE"}`))
		}
		serving.RoutePipelines(ctx, routes, http.HandlerFunc(off), http.HandlerFunc(off))
		return
	}
	serving.RoutePipelines(ctx, routes, s.Handler(m.Authenticate, manager.AccountOf), s.Hooks())
}
