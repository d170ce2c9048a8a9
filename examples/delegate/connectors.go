package main

import (
	"net/http"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/connector"
)

// connectorRoutes returns the handlers of the tests of connectors (rule G3) and of the statuses of commits. They use the proxy and the CAs of the manager's
// client.
func connectorRoutes(c *client.HTTP) router.RouteMap {
	base, _ := c.Transport().(*http.Transport)
	return connector.Routes(base)
}
