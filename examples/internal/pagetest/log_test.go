package pagetest

import (
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

// failedCell opens the log of the failed cell of a run of the shop: 14 lines, the first of which begin a group.
func failedCell(t *testing.T) (p *tab, run string) {
	t.Helper()
	m := site(t)
	run = start(t, m, api.RunRequest{YAML: shop, Branch: "main", Codebase: map[string]any{"branch": "main"}}).ID
	ended(t, m, run)
	p = signedIn(t, m)
	p.visit("#/runs/" + run)
	p.shows(".line", "price_test.go:31")
	return p, run
}

func TestTheToolsOfALog(t *testing.T) {
	p, _ := failedCell(t)
	const lines = `[...document.querySelectorAll('.line')].filter(l => l.checkVisibility()).map(l => l.querySelector('.out').innerText)`
	assert.Contains(t, value[[]string](p, lines), "go: downloading chi")
	p.press(".line .group", "Download")
	p.until(`document.querySelector('.line .group').ariaExpanded === 'false'`)
	assert.NotContains(t, value[[]string](p, lines), "go: downloading chi", "the group is closed")
	assert.Contains(t, value[[]string](p, lines), "    price_test.go:31: error: got 4,5, want 4.50")
	p.enter("Search the log", "downloading jose")
	p.shows(".hits", "1 line")
	p.run(chromedp.KeyEvent("\r"))
	p.shows(".line.marked", "downloading jose") // a hit opens its group

	const stamps = `[...document.querySelectorAll('.line .at')].filter(e => e.checkVisibility() && /^\d\d:\d\d:\d\d\.\d\d\d$/.test(e.innerText)).length`
	assert.Zero(t, value[int](p, stamps))
	p.press("button", "Timestamps")
	p.until(stamps + ` === document.querySelectorAll('.line').length`)

	whole := value[string](p, `(async () => (await fetch([...document.querySelectorAll('a[download]')].find(a => a.checkVisibility()).href)).text())()`)
	assert.Contains(t, whole, "go: downloading jose")
	assert.Contains(t, whole, "price_test.go:31")
}

// The end of a view removes its nodes and listeners: after a day, a page has as many as a new one.
func TestAPageThatIsUsedForLongDoesNotGrow(t *testing.T) {
	p, run := failedCell(t)
	ctx, cancel := contextOf(p)
	defer cancel()
	_, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{})
	require.NoError(t, err)
	count := func() map[string]float64 {
		t.Helper()
		_, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{})
		require.NoError(t, err)
		got, err := chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
		require.NoError(t, err)
		all := map[string]float64{}
		for _, m := range got.Metrics {
			all[m.Name] = m.Value
		}
		require.Positive(t, all["Nodes"])
		return all
	}
	round := func() {
		t.Helper()
		for _, view := range [][2]string{
			{"#/runs/" + run, "price_test.go:31"}, {"#/runs/" + run + "?view=logs", "58 lines · complete"}, {"#/runs/" + run + "?view=timeline", "Unit tests"},
			{"#/stages", "Lint"}, {"#/queue", "Waiting"}, {"#/delegates", "amd64"}, {"#/schedules", "Schedules"}, {"#/connectors", "no connectors"},
			{"#/upgrades", "no update"}, {"#/runs", "Shop #"},
		} {
			p.visit(view[0])
			p.shows("main", view[1])
		}
	}
	round()
	round()
	before := count()
	for range 4 {
		round()
	}
	after := count()
	t.Log("nodes and listeners:", before["Nodes"], before["JSEventListeners"], after["Nodes"], after["JSEventListeners"])
	assert.InDelta(t, before["Nodes"], after["Nodes"], 200, "nodes of the document")
	assert.InDelta(t, before["JSEventListeners"], after["JSEventListeners"], 20, "listeners")
}
