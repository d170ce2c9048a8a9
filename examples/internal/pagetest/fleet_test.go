package pagetest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/daemonset"
	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	delegatetask "github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/connector"
)

// watcher is a daemon set inside the delegate.
type watcher struct{}

func (watcher) Configure(context.Context, json.RawMessage) error { return nil }
func (watcher) Assign(context.Context, []daemonset.Task) error   { return nil }
func (watcher) Remove(context.Context, []string) error           { return nil }

// fleet starts a machine whose delegate runs daemon sets, and tests connectors.
func fleet(t *testing.T, options ...poller.Option) (*machine.Machine, *api.Client) {
	t.Helper()
	sets, err := daemonset.New(daemonset.Config{State: t.TempDir(), Handlers: map[string]daemonset.Handler{"watcher": watcher{}}})
	require.NoError(t, err)
	m, err := machine.Start(context.Background(), machine.Config{
		Dir: t.TempDir(), Log: zerolog.Nop(),
		Routes:  router.RouteMap(sets.Routes()).Merge(connector.Routes(nil)),
		Options: append(options, poller.WithDaemons(sets)),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, m.Close(ctx))
	})
	token, err := m.Token(time.Hour)
	require.NoError(t, err)
	client, err := api.New(api.Config{URL: m.URL, Account: machine.Account, Token: token, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	require.NoError(t, err)
	return m, client
}

// again opens a view that another one has replaced, so that it is read anew.
func (p *tab) again(view string) {
	p.t.Helper()
	p.visit("#/limits")
	p.shows("h1", "Limits")
	p.visit(view)
}

func TestWhatDelegatesKeepIsShownAndSteered(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	m, client := fleet(t, poller.WithPerpetual("mirror", delegatetask.PerpetualFunc(func(context.Context, *delegatetask.PerpetualRun) (*delegatetask.PerpetualResult, error) {
		if broken.Load() {
			return nil, errors.New("the mirror is away: " + attack)
		}
		return &delegatetask.PerpetualResult{}, nil
	})))
	ctx := t.Context()
	_, err := client.SetPerpetualTask(ctx, api.PerpetualTask{ID: "mirror", Name: "Mirror " + attack, Type: "mirror", IntervalMS: 3_600_000})
	require.NoError(t, err)
	_, err = client.SetDaemonSet(ctx, api.DaemonSet{ID: "watcher", Type: "watcher", Selectors: []string{"local"}})
	require.NoError(t, err)
	until := func(reached func(api.PerpetualTask) bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			now, err := client.PerpetualTask(ctx, "mirror")
			return err == nil && reached(now)
		}, patience, between)
	}
	p := signedIn(t, m)
	seen := func(view string) {
		t.Helper()
		assert.True(t, value[bool](p, `window.attacked === undefined && !document.querySelector('main img, main script, main svg:not(.icon)')`), view)
		check(p, view, true)
		checkPhone(p, view)
	}

	until(func(now api.PerpetualTask) bool { return now.Failures > 0 })
	p.visit("#/perpetual")
	p.shows("td", "Mirror "+attack)
	p.shows("td", "local")
	p.shows("td .problem", "since the last success: the mirror is away: "+attack)
	seen("perpetual tasks")
	broken.Store(false)
	p.press("button", "Run now mirror")
	until(func(now api.PerpetualTask) bool { return now.Failures == 0 })
	p.again("#/perpetual")
	p.shows("td", " runs, ")
	assert.False(t, value[bool](p, `document.querySelector('td .problem') !== null`), "the last run was successful")
	const pause = `[...document.querySelectorAll('button')].find(b => b.ariaLabel === 'Pause mirror')`
	p.until(pause)
	p.run(act(pause+`.focus()`), chromedp.KeyEvent("\r"))
	p.enter("Note", "new disks "+attack)
	p.press("dialog button", "Pause")
	p.shows("td", "new disks "+attack)
	p.until(`document.activeElement.ariaLabel === 'Resume mirror'`) // a person with a keyboard continues where the button was
	seen("a paused perpetual task")
	p.press("button", "Resume mirror")
	p.shows("td button", "Pause")

	require.Eventually(t, func() bool {
		now, err := client.DaemonSet(ctx, "watcher")
		return err == nil && len(now.Delegates) == 1 && now.Delegates[0].Healthy
	}, patience, between)
	p.visit("#/daemons")
	p.shows("td", "1 of 1")
	p.press("summary", "Delegates")
	p.shows("details td", "healthy")
	seen("daemon sets")
}

func TestConnectorsAreTestedFromThePage(t *testing.T) {
	m, client := fleet(t)
	ctx := t.Context()
	var status atomic.Int32
	status.Store(http.StatusOK)
	system := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer system.Close()
	_, err := client.SetConnector(ctx, api.Connector{ID: "web", Name: "Site " + attack, Kind: "http", Address: system.URL, Selectors: []string{"local"}})
	require.NoError(t, err)
	p := signedIn(t, m)
	p.visit("#/connectors")
	p.shows("td", "Site "+attack)
	p.press("button", "Test web")
	p.shows("main", "web works.")
	status.Store(http.StatusUnauthorized)
	p.press("button", "Test web")
	p.shows("main", "web does not work.")
	p.shows(".results .problem", "failed · authentication")
	p.shows(".results .sub", "secret") // what to do
	check(p, "connectors", true)
	checkPhone(p, "connectors")
	assert.True(t, value[bool](p, `window.attacked === undefined`))
}

func TestAnUpdateOfTheDelegatesIsShownAndSteered(t *testing.T) {
	m, client := fleet(t)
	ctx := t.Context()
	_, err := client.SetUpgrade(ctx, api.Upgrade{Version: "v9.9.9"})
	require.NoError(t, err)
	token, err := m.Token(time.Hour)
	require.NoError(t, err)
	asks := func(more map[string]string) {
		t.Helper()
		in := map[string]string{"id": "build-7", "delegateName": "build-7", "version": "v9.9.8"}
		for name, value := range more {
			in[name] = value
		}
		body, err := json.Marshal(in)
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/api/agent/delegates/upgrade?accountId="+url.QueryEscape(machine.Account), strings.NewReader(string(body)))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	asks(nil)
	p := signedIn(t, m)
	p.visit("#/upgrades")
	p.shows("td", "v9.9.9")
	p.shows("td", "build-7")
	p.press("button", "Pause the update")
	p.shows("td", "paused")
	p.press("button", "Continue the update")
	p.shows("td", "running")
	asks(map[string]string{"failed": "v9.9.9", "reason": attack})
	p.again("#/upgrades")
	p.shows("td", "stopped after failures")
	p.shows("td .problem", attack)
	assert.True(t, value[bool](p, `window.attacked === undefined && !document.querySelector('main img, main script')`))
	check(p, "the update", true)
	checkPhone(p, "the update")
	p.press("button", "Continue the update")
	p.until(`!document.querySelector('td .problem')`)
	now, err := client.Upgrade(ctx)
	require.NoError(t, err)
	assert.Equal(t, "running", now.State)
}
