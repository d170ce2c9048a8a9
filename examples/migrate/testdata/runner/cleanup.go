package main

import (
	"context"
	"log"
	"net/http"
	"time"

	"github.com/wings-software/dlite/httphelper"
)

// cleanupTimeout bounds a cleanup.
const cleanupTimeout = 5 * time.Minute

// cleanupHandler ends a stage.
type cleanupHandler struct{ c *command }

func (t *cleanupHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A cleanup goes on when its caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), cleanupTimeout)
	defer cancel()
	req := &cleanupRequest{}
	task, ok := decodeTask(w, r, req)
	if !ok {
		return
	}
	if err := req.validate(); err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	if err := t.c.endStage(ctx, req.StageRuntimeID); err != nil {
		log.Printf("task %s: the cleanup failed: %v", task.ID, err)
		httphelper.WriteJSON(w, failed(err), http.StatusOK)
		return
	}
	resp := vmResponse{CommandExecutionStatus: success, DelegateMetaInfo: t.c.metaInfo(task)}
	httphelper.WriteJSON(w, resp, http.StatusOK)
}

// capacityHandler reports whether a stage fits into a pool.
type capacityHandler struct{ c *command }

func (t *capacityHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &capacityRequest{}
	if _, ok := decodeTask(w, r, req); !ok {
		return
	}
	if err := req.validate(); err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	free, err := t.c.pools.free(req.PoolID)
	if err != nil {
		httphelper.WriteNotFound(w, err)
		return
	}
	httphelper.WriteJSON(w, map[string]any{"id": req.ID, "free": free, "fits": free > 0}, http.StatusOK)
}

// logHandler returns the output of a step.
type logHandler struct{ c *command }

func (t *logHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &logRequest{}
	if _, ok := decodeTask(w, r, req); !ok {
		return
	}
	if err := req.validate(); err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	lines, next, ok := t.c.logs.lines(req.StageRuntimeID, req.StepID, req.From)
	if !ok {
		httphelper.WriteNotFound(w, errUnknownStage)
		return
	}
	httphelper.WriteJSON(w, map[string]any{"lines": lines, "next": next}, http.StatusOK)
}
