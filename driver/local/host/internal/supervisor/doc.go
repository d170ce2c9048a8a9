// Package supervisor is the process that runs the host steps of a transaction, in namespaces. The driver
// starts its own program again with [Name] as the only argument, and sends a [Layout] to it. Then it sends
// a [Call] on each connection to the socket of the supervisor.
//
// The supervisor runs in an init function. No other package of this project has one. Go initializes
// packages in the order of their import paths, as soon as their imports are initialized. This package
// imports little, so its turn comes before most packages of a large program. The initialization of all
// packages of the bundled delegate takes 15 ms of CPU time, more than the whole work of a supervisor. In a
// process without the argument, init does nothing.
//
// Keep the imports of this package few for that reason: package net, for example, comes after 200 others.
//
// Start reading at wire.go.
package supervisor
