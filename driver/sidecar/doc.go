// Package sidecar hands chosen task types to a legacy process next to the delegate,
// over HTTP or a unix socket (SPEC D9), and looks after that process where it is asked
// to:
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
// A task of [Config].Types is posted as a handler gets it: whole, as JSON, with its
// secrets resolved. What the sidecar answers, status, body and the header
// [task.CodeHeader], is the task's answer.
//
// A task of type [task.TypeDelegate] brings a package for the sidecar along (PROTOCOL 2),
// which is posted as it is. The sidecar answers the manager by itself, so the delegate
// does not, unless the sidecar did not take the package: with a status of 2xx it has,
// whatever follows. A sidecar may say of any
// other task, too, that it answers by itself: with the header Dlite-Task-Code:
// ANSWERED_ELSEWHERE.
//
// A task is posted once. While the sidecar cannot be reached, as when it is being
// restarted, the task waits ([Config].Wait) and then asks for another delegate; when
// the connection breaks later nobody can tell what became of it, and the answer is
// UNKNOWN.
//
// Start reading at sidecar.go for the calls and supervise.go for the process.
package sidecar
