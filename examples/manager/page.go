package main

import (
	"net/http"

	"github.com/delegate-io/dlite/internal/httpserver"
	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/manager"
	"github.com/delegate-io/dlite/manager/web"
)

// pagePath is where the manager serves its page.
const pagePath = "/ui"

// page returns the page of the manager. Managers with the same STORE_KEY accept the same sessions. The calls of a page count as those
// of its token.
func (c *serverCommand) page(api, logs http.Handler, keys [][]byte, m *manager.Manager, provider web.Provider) http.Handler {
	limit := httpserver.LimitRequests(c.PerToken, "Authorization", logheader.Token)
	cfg := web.Config{API: limit(api), Logs: limit(logs), Lifetime: c.SignIn.Session, Provider: provider, Token: m.Token}
	if len(keys) > 0 {
		cfg.Key = keys[0]
	}
	return web.New(cfg)
}
