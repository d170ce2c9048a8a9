// Package podagent runs inside the pod of a transaction, for package driver/kubernetes. It
// connects the driver with an agent (package driver/agent) in each container of the pod.
//
// The init container of the pod copies the program to a directory that all containers mount.
// The main container of the pod is the hub ([Hub]): the delegate has one connection to it,
// through an exec of [Dial], and speaks HTTP/2 on it. In each other container the program is
// the first process ([Step]). It connects to the hub and serves the agent API
// (docs/protocol.md, section 5) on that connection. So no process has to listen in the
// container of a step, and other steps cannot reach the agent.
//
//	POST /steps/<container>/start_step    goes to the agent of that container
//
// The program is examples/agent. Start reading at hub.go.
package podagent
