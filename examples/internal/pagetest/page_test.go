package pagetest

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
)

// live runs until a file exists.
func live(gate string) string {
	return `
pipeline:
  identifier: live
  name: Live
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step: {identifier: first, name: First, type: Run, spec: {command: echo one}}
              - step:
                  identifier: second
                  name: Second
                  type: Run
                  spec:
                    command: |-
                      echo before; while [ ! -e ` + gate + ` ]; do sleep 0.05; done; echo after
`
}

func TestARunIsFollowedFromSignInToItsEnd(t *testing.T) {
	m := site(t)
	gate := filepath.Join(t.TempDir(), "gate")
	base, seen := counted(t, m)
	p := openWith(t, base, timers)
	p.signIn(m)
	run := start(t, m, api.RunRequest{YAML: live(gate), Branch: "main", User: "ada"})

	p.shows("table .main-link", "Live #")
	name := fmt.Sprint("Live #", run.Number)
	p.until(`[...document.querySelectorAll('tbody tr')][0].innerText.includes('running')`)
	assertNoPoll(p, seen)
	p.press("table .main-link", name)
	p.shows("h1", name)
	p.shows(".tree a", "Second")
	p.shows(".line", "before")
	assert.NotContains(t, value[string](p, `document.querySelector('.lines').innerText`), "after")
	p.shows(".run-title .badge", "running")
	assertNoPoll(p, seen)

	assert.NoError(t, os.WriteFile(gate, nil, 0o600))
	p.shows(".line", "after")
	p.shows(".run-title .badge", "succeeded")
	p.press(".tree a .name", "First")
	p.shows(".line", "one")
	assert.Equal(t, "SUCCEEDED", ended(t, m, run.ID).Status)
}

// timers gives the page timers that a test can fire. Timers of 30 s and more are left out: one of them ends a connection that
// is silent for longer than the pauses of the server.
const timers = `(() => {
	const pending = new Map(), { setTimeout, setInterval, clearTimeout, clearInterval } = window;
	window.setTimeout = (f, ms, ...args) => {
		const id = setTimeout(() => { pending.delete(id); f(...args); }, ms);
		if ((ms || 0) < 30000) pending.set(id, () => { clearTimeout(id); pending.delete(id); f(...args); });
		return id;
	};
	window.setInterval = (f, ms, ...args) => {
		const id = setInterval(f, ms, ...args);
		if ((ms || 0) < 30000) pending.set(id, () => f(...args));
		return id;
	};
	window.clearTimeout = id => { pending.delete(id); clearTimeout(id); };
	window.clearInterval = id => { pending.delete(id); clearInterval(id); };
	window.fireTimers = () => { for (const fire of [...pending.values()]) fire(); };
})()`

// counted returns the address of the page behind a proxy, and the number of requests that the proxy has seen, without those
// of the session.
func counted(t *testing.T, m *machine.Machine) (base string, seen func() int64) {
	t.Helper()
	at, err := url.Parse(m.URL)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(at); r.Out.Host = r.In.Host },
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ui/session" {
			requests.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL + "/ui/", requests.Load
}

// assertNoPoll fires all timers of the page again and again, as hours would, while nothing changes. The page must not send
// a request.
func assertNoPoll(p *tab, seen func() int64) {
	p.t.Helper()
	rounds := func(n int) int64 {
		for range n {
			// The call to the session comes back after a request that the timers have sent before it.
			value[bool](p, `(async () => { fireTimers(); await (await fetch('session')).text(); return true; })()`)
		}
		return seen()
	}
	before := rounds(5) // the list may be read twice: for the view, and when its feed opens
	assert.Equal(p.t, before, rounds(10), "the page asks again without a change")
}
