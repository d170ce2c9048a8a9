// Package podagent is what runs inside a transaction's pod for package
// driver/kubernetes: the same agent as in a machine (driver/vm/agent), and what it
// takes to reach one in each container of a pod.
//
// The pod's init container copies the program into a folder that all containers
// mount. The pod's main container is the hub ([Hub]): the delegate
// holds one connection to it, through an exec of [Dial], and speaks HTTP/2 there.
// In every other container the program is the first process ([Step]). It connects
// to the hub and serves PROTOCOL 5 on that same connection, so that nothing has
// to listen in a step's container and nothing of it can be reached by another
// step.
//
//	POST /steps/<container>/start_step    goes to the agent of that container
//
// examples/agent composes it to a program. Start reading at hub.go.
package podagent
