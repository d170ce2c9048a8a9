package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/wings-software/dlite/httphelper"
	"github.com/wings-software/dlite/task"
)

// The task types of the runner.
const (
	initTask     = "DLITE_CI_VM_INITIALIZE_TASK"
	executeTask  = "DLITE_CI_VM_EXECUTE_TASK"
	cleanupTask  = "DLITE_CI_VM_CLEANUP_TASK"
	capacityTask = "DLITE_CI_VM_CAPACITY_TASK"
	logTask      = "DLITE_CI_VM_LOG_TASK"
)

// routeMap has the handlers of the tasks.
func routeMap(c *command) map[string]task.Handler {
	return map[string]task.Handler{
		initTask:     withRecovery(c, &initHandler{c}),
		executeTask:  withRecovery(c, &executeHandler{c}),
		cleanupTask:  withRecovery(c, &cleanupHandler{c}),
		capacityTask: withRecovery(c, &capacityHandler{c}),
		logTask:      withRecovery(c, &logHandler{c}),
	}
}

// withRecovery answers for a handler that panics.
func withRecovery(c *command, next task.Handler) task.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				log.Printf("a handler panicked: %v", p)
				c.metrics.panicked()
				httphelper.WriteInternalError(w, fmt.Errorf("the handler panicked: %v", p))
			}
		}()
		next.ServeHTTP(w, r)
	})
}
