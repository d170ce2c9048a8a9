package pagetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
)

// screensVariable names the directory of the pictures of the docs. Without it the test only walks through the views.
const screensVariable = "DLITE_PAGE_SCREENS"

// screen takes a picture of the page in light and dark.
func (p *tab) screen(name string) {
	p.t.Helper()
	dir := os.Getenv(screensVariable)
	if dir == "" {
		return
	}
	for _, mode := range []string{"light", "dark"} {
		p.media(mode)
		ctx, cancel := contextOf(p)
		picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		require.NoError(p.t, err)
		require.NoError(p.t, os.WriteFile(filepath.Join(dir, "page-"+name+"-"+mode+".png"), picture, 0o644))
	}
	p.media("light")
}

// media chooses the light or the dark mode.
func (p *tab) media(mode string) {
	p.t.Helper()
	ctx, cancel := contextOf(p)
	defer cancel()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: mode}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(p.t, err)
	value[bool](p, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// The walk of docs/page.md: from signing in to the line of a failed cell of a matrix.
func TestAFailedCellOfAMatrixIsFound(t *testing.T) {
	m := site(t)
	p := open(t, m.URL+"/ui/")
	p.shows("h1", "Sign in")
	p.screen("signin")
	p.signIn(m)
	p.run(chromedp.EmulateViewport(1280, 1080))

	walk := map[string]string{"team": "shop"} // other tests run the pipeline too
	good := start(t, m, api.RunRequest{YAML: shop, Branch: "feature/cart", User: "lin", Labels: walk, Codebase: map[string]any{"branch": "feature/cart"}})
	bad := start(t, m, api.RunRequest{YAML: shop, Branch: "main", User: "ada", Labels: walk, Codebase: map[string]any{"branch": "main"}, Inputs: map[string]string{"version": "1.5"}})
	ended(t, m, good.ID)
	ended(t, m, bad.ID)
	p.visit("#/runs?label=team%3Dshop")
	p.until(`document.querySelectorAll('tbody tr').length === 2 && [...document.querySelectorAll('tbody .badge')].every(b => b.innerText === 'failed')`)
	p.screen("runs")

	p.press("table .main-link", fmt.Sprint("Shop #", bad.Number))
	p.shows(".cell[aria-current]", "windows")
	p.shows(".line", "price_test.go:31")
	p.press("button", "First error")
	p.shows(".line.marked", "FAIL: TestPriceHasTwoDigits")
	p.screen("run")

	p.press(".panel .tabs a", "Details")
	p.shows(".details", "matrix.os")
	p.screen("details")
	p.press(".tabs a", "Timeline")
	p.shows(".timeline", "Unit tests")
	p.screen("timeline")
	p.press(".tabs a", "Expressions")
	p.shows(".details", "strategy.matrix.nodeName")
	p.press(".tabs a", "YAML")
	p.shows(".yaml", "identifier: shop")
	p.press("button", "As it ran")
	p.shows(".yaml", "release 1.5")
	p.press(".tabs a", "All logs")
	p.shows(".log-state", "complete")
	p.enter("Search the log", "no findings")
	p.shows(".hits", "1 line")
	p.run(chromedp.KeyEvent("\r"))
	p.shows(".line.marked", "no findings")
	p.screen("logs")

	p.run(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	p.press(".tabs a", "Steps")
	p.press(".panel .tabs a", "Log")
	p.shows(".line", "price_test.go:31")
	p.screen("phone")
}

func TestTheOperatorsViews(t *testing.T) {
	m := site(t)
	p := signedIn(t, m)
	p.visit("#/delegates")
	p.shows(".chip", "local")
	p.screen("delegates")
	p.press("button", "Drain local")
	p.shows(".badge", "draining")
	p.press("button", "Resume local")
	p.shows(".badge", "alive")

	p.visit("#/queue")
	p.shows("dt", "Waiting")
	p.visit("#/limits")
	p.press("button", "Add a limit")
	p.enter("Group", "pipeline:shop")
	p.enter("Limit", "3")
	p.press("dialog button", "Set")
	p.shows("td", "pipeline:shop")
	p.visit("#/triggers")
	p.shows(".notice", "There are no triggers.")
	_, err := m.Pipelines.SetPipeline(t.Context(), machine.Account, api.Pipeline{ID: "shop", YAML: shop})
	require.NoError(t, err)
	for _, trigger := range []api.Trigger{
		{ID: "nightly", Kind: "cron", Cron: "0 4 * * *", Pipeline: "shop"},
		{ID: "commits", Kind: "git", Source: &api.TriggerSource{Repository: "https://git.example/app"}, Branches: []string{"main"}, Pipeline: "shop", Disabled: true},
	} {
		_, err := m.Pipelines.SetTrigger(t.Context(), machine.Account, trigger)
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, m.Pipelines.DeleteTrigger(context.Background(), machine.Account, trigger.ID))
		})
	}
	p.again("#/triggers")
	p.shows("td", "0 4 * * *")
	p.shows("td", "git · https://git.example/app · main")
	p.shows("td", "disabled")
	p.visit("#/stages")
	p.until(`document.querySelector('.rows .row, .notice p')`)
	p.screen("stages")
}
