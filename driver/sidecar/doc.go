// Package sidecar forwards selected task types to a legacy process next to the delegate,
// over HTTP or a unix socket (rule D9). It can also start and supervise that process:
//
//	legacy, err := sidecar.New(sidecar.Config{
//		Types:   []string{"HELM_DEPLOY"},
//		Command: []string{"java", "-jar", "/opt/legacy/delegate.jar"},
//		Health:  "/health",
//	})
//	if err != nil {
//		return err
//	}
//	routes := router.RouteMap(legacy.Routes()).Merge(others)
//	go legacy.Run(ctx) // until the last task is done
//
// A task of [Config].Types is posted in the form that a handler gets: the whole task, as
// JSON, with resolved secrets. The answer of the sidecar (status, body and the header
// [task.CodeHeader]) is the answer of the task.
//
// A task of type [task.TypeDelegate] contains a package for the sidecar
// (docs/protocol.md, section 2), which is posted unchanged. The sidecar answers the
// manager itself, so the delegate does not answer. A 2xx status means that the sidecar
// has accepted the package, whatever follows; after any other status the delegate answers
// with a failure. For tasks of other types, a sidecar can declare that it answers
// itself, with the header Dlite-Task-Code: ANSWERED_ELSEWHERE.
//
// A task is posted once. While the sidecar cannot be reached, for example during a
// restart, the task waits ([Config].Wait) and then asks for another delegate. If the
// connection breaks later, the outcome of the task is not known, and the answer is
// UNKNOWN.
//
// Start reading at sidecar.go for the calls and supervise.go for the process.
package sidecar
