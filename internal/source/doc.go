// Package source has the wire forms of the tasks that watch sources for the triggers of pipelines, and of the task that
// reports the status of a commit. The manager's side writes their configuration and reads their events; the handlers are
// in task/connector. Start reading at source.go.
package source
