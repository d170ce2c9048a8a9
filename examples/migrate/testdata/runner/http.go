package main

import (
	"context"
	"io"
	"net/http"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/httphelper"
	"github.com/wings-software/dlite/poller"
)

// The answers of the HTTP server.
const (
	okStatus       = "OK"
	enabledStatus  = "ENABLED"
	disabledStatus = "DISABLED"
)

// Handler serves the maintenance mode, the metrics and the health.
func Handler(p *poller.Poller, c *command) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /maintenance_mode", handleStatus(p))
	mux.HandleFunc("POST /maintenance_mode/enable", handleEnable(p, c))
	mux.HandleFunc("POST /maintenance_mode/disable", handleDisable(p))
	mux.HandleFunc("GET /metrics", c.metrics.serve)
	mux.HandleFunc("GET /pools", handlePools(c))
	mux.HandleFunc("GET /stages/{id}", handleStage(c))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, okStatus)
	})
	return mux
}

func handleEnable(p *poller.Poller, c *command) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.SetFilter(func(ev *client.TaskEvent) bool {
			return ev.TaskType != initTask
		})
		if err := c.pools.clean(context.WithoutCancel(r.Context())); err != nil {
			httphelper.WriteInternalError(w, err)
			return
		}
		_, _ = io.WriteString(w, okStatus)
	}
}

func handleDisable(p *poller.Poller) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		p.SetFilter(nil)
		_, _ = io.WriteString(w, okStatus)
	}
}

func handleStatus(p *poller.Poller) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if p.Filter == nil {
			_, _ = io.WriteString(w, disabledStatus)
			return
		}
		_, _ = io.WriteString(w, enabledStatus)
	}
}

func handlePools(c *command) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		httphelper.WriteJSON(w, c.pools.status(), http.StatusOK)
	}
}

func handleStage(c *command) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stage, ok := c.stages.find(r.PathValue("id"))
		if !ok {
			httphelper.WriteNotFound(w, errUnknownStage)
			return
		}
		httphelper.WriteJSON(w, stage, http.StatusOK)
	}
}
