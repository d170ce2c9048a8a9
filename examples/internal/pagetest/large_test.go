package pagetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

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

func TestALogOfManyLinesIsRead(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: chatty})
	p := signedIn(t, m)
	p.visit("#/runs/" + run.ID)
	p.until(fmt.Sprintf(`document.querySelector('.log-state')?.innerText.startsWith('%d,000 lines')`, manyLines/1000))
	p.shows(".log-state", "complete")
	assert.Less(t, value[int](p, `document.querySelectorAll('.line').length`), 150, "elements of lines")

	seen := p.scroll(".lines")
	t.Logf("scrolling %d lines, in ms: %+v", manyLines, seen)
	assert.Less(t, seen.Script, 250.0, "the page's part of a frame, in ms, with other programs beside it")
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
