package pagetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/api"
)

const manyLines = 100_000

// chatty prints many lines, and one that differs.
var chatty = fmt.Sprintf(`
pipeline:
  identifier: chatty
  name: Chatty
  stages:
    - stage:
        identifier: talk
        name: Talk
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
              - step:
                  identifier: lines
                  name: Lines
                  type: Run
                  spec:
                    command: seq -f 'line %%.0f of a log that is long enough to be drawn line by line' 1 %d
`, manyLines)

// scrolling is what a scroll through a list showed, in milliseconds: the longest times between two frames, which other
// programs of the machine make longer, and the longest time that scripts of the page took in a frame.
type scrolling struct {
	Gaps   []float64
	Script float64
}

// scroll scrolls a list from its beginning to its end.
func (p *tab) scroll(list string) scrolling {
	p.t.Helper()
	return value[scrolling](p, strings.ReplaceAll(`(async () => {
	const view = document.querySelector(LIST), gaps = [];
	let script = 0;
	const seen = new PerformanceObserver(list => { for (const e of list.getEntries()) script = Math.max(script, e.scripts.reduce((sum, s) => sum + s.duration, 0)); });
	seen.observe({ type: 'long-animation-frame' });
	let last = await new Promise(requestAnimationFrame);
	for (let i = 0; i <= 300; i++) {
		view.scrollTop = (view.scrollHeight - view.clientHeight) * i / 300;
		const now = await new Promise(requestAnimationFrame);
		gaps.push(now - last);
		last = now;
	}
	await new Promise(done => setTimeout(done, 100));
	seen.disconnect();
	return { gaps: gaps.sort((a, b) => b - a).slice(0, 3).map(Math.round), script: Math.round(script) };
})()`, "LIST", quote(list)))
}

// longFrame is the time of a frame that a person notices while scrolling, in milliseconds.
const longFrame = 100.0

// scrollsWell scrolls a list and tests its frames. Other programs of the machine make the times between frames longer, so these
// are tested on an idle machine only. The processor time of the page is tested always: it has no other cause than the page.
func (p *tab) scrollsWell(list string) {
	p.t.Helper()
	seen, used := p.scroll(list), p.processor(list)
	p.t.Logf("scrolling, in ms: %+v, and at most %.0f of processor time in a frame", seen, used)
	assert.Less(p.t, used, longFrame, "processor time of the page for a frame, in ms")
	if os.Getenv(figuresVariable) != "" {
		assert.Less(p.t, seen.Gaps[0], longFrame, "time between two frames, in ms")
	}
}

// processor scrolls a list from its beginning to its end, and returns the most processor time that the main thread of the page
// used for a step, in milliseconds.
func (p *tab) processor(list string) (most float64) {
	p.t.Helper()
	const steps = 60
	ctx, cancel := contextOf(p)
	defer cancel()
	_, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{})
	require.NoError(p.t, err)
	used := func() float64 {
		got, err := chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
		require.NoError(p.t, err)
		i := slices.IndexFunc(got.Metrics, func(m *performance.Metric) bool { return m.Name == "ThreadTime" })
		require.GreaterOrEqual(p.t, i, 0, "the browser must report the processor time of the thread")
		return 1000 * got.Metrics[i].Value
	}
	before := used()
	for i := range steps + 1 {
		value[bool](p, fmt.Sprintf(`(async () => {
			const view = document.querySelector(%s);
			view.scrollTop = (view.scrollHeight - view.clientHeight) * %d / %d;
			for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
			return true;
		})()`, quote(list), i, steps))
		now := used()
		most, before = max(most, now-before), now
	}
	require.Positive(p.t, most)
	return most
}

func TestALogOfManyLinesIsRead(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: chatty})
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.until(fmt.Sprintf(`document.querySelector('.log-state')?.innerText.startsWith('%d,000 lines')`, manyLines/1000))
	p.shows(".log-state", "complete")
	assert.Less(t, value[int](p, `document.querySelectorAll('.line').length`), 150, "elements of lines")

	p.scrollsWell(".lines")
	p.shows(".line .n", fmt.Sprint(manyLines))
	assert.Equal(t, manyLines-10, value[int](p, fmt.Sprintf(`Number([...document.querySelectorAll('.line')].find(l => l.innerText.includes('line %d of')).querySelector('.n').innerText)`, manyLines-10)), "no line is lost or doubled")

	began := time.Now()
	p.enter("Search the log", "line 99999 ")
	p.shows(".hits", "1 line")
	t.Log("a search took", time.Since(began))
	p.run(chromedp.KeyEvent("\r"))
	p.shows(".line.marked", "line 99999 of")

	// A link leads to the line, also in a page that has not read it yet.
	p.until(`location.hash.length > 0`)
	p.visit("#/runs")
	p.shows("h1", "Runs")
	p.visit("#/runs/" + run.ID + "?line=50000")
	p.shows(".line.marked", "line 50000 of")
}
