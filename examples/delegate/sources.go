package main

import (
	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task/connector/source"
)

// openWatched returns the handlers that poll the sources of triggers, as options of the poller. They use the proxy and the
// CAs of the manager's client. Call close after the last task.
func openWatched(c *client.HTTP, resolver secrets.ResolverConfig) (options []poller.Option, close func()) {
	watched := source.New(source.Config{Transport: c.Transport(), Secrets: resolver})
	for taskType, h := range watched.Handlers() {
		options = append(options, poller.WithPerpetual(taskType, h))
	}
	return options, watched.Close
}
