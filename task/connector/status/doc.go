// Package status reports the statuses of commits to Git providers. A pipeline service sends them as single tasks:
//
//	routes["git/status"] = status.Handler(client.Transport())
//
// Start reading at status.go.
package status
