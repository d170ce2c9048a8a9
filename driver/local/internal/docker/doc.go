// Package docker runs steps in containers of a Docker engine, for package local (rule D3). The
// documentation of package local describes its behaviour.
//
// The boundary between the packages is the type steps.Driver: it has the state that host steps and
// container steps share.
//
// Start reading at runner.go.
package docker
