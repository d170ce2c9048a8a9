// Package status reports the statuses of commits to Git providers. A pipeline service sends them as single tasks of
// the type git/status.
//
// Start reading at status.go.
package status
