package pagetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/internal/token"
	"github.com/delegate-io/dlite/manager/api"
)

// figuresVariable makes the tests fail if the figures of docs/benchmarks.md are not reached, which needs an idle machine.
const figuresVariable = "DLITE_PAGE_FIGURES"

const manySteps = 500

// long is a pipeline with many steps, of which the first ones run.
func long() string {
	var b strings.Builder
	b.WriteString("pipeline:\n  identifier: long\n  name: Long\n  stages:\n    - stage:\n        identifier: build\n        name: Build\n        type: CI\n" +
		"        spec:\n          runtime: {type: Docker, spec: {}}\n          execution:\n            steps:\n")
	for i := range manySteps {
		when := ""
		if i >= 10 {
			when = `, when: {stageStatus: Success, condition: "false"}`
		}
		_, _ = fmt.Fprintf(&b, "              - step: {identifier: s%d, name: Step %d, type: Run%s, spec: {command: echo %d}}\n", i, i, when, i)
	}
	return b.String()
}

func TestTheFirstScreenOfARunWithManySteps(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: long()})
	ended(t, m, run.ID)
	p := signedIn(t, m)
	ctx, cancel := contextOf(p)
	defer cancel()
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`(() => {
		window.shift = 0;
		new PerformanceObserver(list => { for (const e of list.getEntries()) window.shift += e.value; }).observe({ type: 'layout-shift', buffered: true });
		const look = () => { if (document.querySelectorAll('.tree .kind-step').length === %d && document.querySelector('h1')?.innerText) window.firstScreen = performance.now(); else requestAnimationFrame(look); };
		requestAnimationFrame(look);
	})()`, manySteps)})
	require.NoError(t, err)
	var times, shifts []float64
	for range 5 {
		p.run(chromedp.Navigate("about:blank"), chromedp.Navigate(m.URL+"/ui/#/runs/"+run.ID))
		p.until(`window.firstScreen > 0`)
		times = append(times, value[float64](p, `Math.round(window.firstScreen)`))
		shifts = append(shifts, value[float64](p, `new Promise(done => setTimeout(() => done(window.shift), 100))`))
	}
	slices.Sort(times)
	t.Log("first screen in ms, from the start of the navigation:", times, "layout shifts:", shifts)
	assert.Less(t, slices.Max(shifts), 0.1, "parts of the page jump while it loads")
	if os.Getenv(figuresVariable) != "" {
		assert.Less(t, times[2], 300.0)
	}
}

const openPages = 100

// BenchmarkOpenPages reports what 100 open pages cost a manager that starts runs all the time: the processor time in percent of
// a core, and the memory in MB, both beyond what the manager needs without them.
func BenchmarkOpenPages(b *testing.B) {
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	m := &program{t: b, path: testbed.BuildStatic(b, "./examples/manager"), dir: b.TempDir(), address: l.Addr().String()}
	require.NoError(b, l.Close())
	m.start()
	defer m.kill()
	secret, err := token.ParseSecret(fakeSecret)
	require.NoError(b, err)
	tok, err := secret.Issue("acme", time.Now(), time.Hour)
	require.NoError(b, err)

	ctx, cancel := context.WithCancel(b.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	skipped := strings.ReplaceAll(strings.ReplaceAll(long(), "- stage:", "- stage:\n        when: {pipelineStatus: Success, condition: \"false\"}"), "\n", `\n`)
	body := `{"yaml":"` + strings.ReplaceAll(skipped, `"`, `\"`) + `"}`
	var started atomic.Int64
	begin := func() {
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; {
			m.call(http.MethodPost, "/api/runs?accountId=acme", body)
			started.Add(1)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	const length = 10 * time.Second
	measure := func() (percent float64) {
		began := m.cpu()
		<-time.After(length)
		return 100 * (m.cpu() - began).Seconds() / length.Seconds()
	}
	// The memory is measured without runs, whose own memory would hide it. It includes what the first page needs once.
	before := m.rss()
	end, _ := m.openPages(ctx, tok)
	<-time.After(time.Second)
	memory := m.rss() - before
	end()

	work.Go(begin)
	measure() // until the manager has its size
	for b.Loop() {
		alone, runs := measure(), started.Load()
		end, messages := m.openPages(ctx, tok)
		with := measure()
		end()
		b.ReportMetric(memory, "MB")
		b.ReportMetric(with-alone, "%core")
		b.ReportMetric(alone, "%core-alone")
		b.ReportMetric(float64(messages.Load())/length.Seconds(), "messages/s")
		b.ReportMetric(float64(started.Load()-runs)/length.Seconds(), "runs/s")
	}
}

// openPages opens the streams that pages with the list of runs, and with the queue, have open.
func (m *program) openPages(ctx context.Context, tok string) (end func(), messages *atomic.Int64) {
	ctx, cancel := context.WithCancel(ctx)
	messages = &atomic.Int64{}
	client := &http.Client{Transport: &http.Transport{}}
	do := func(method, path, body, cookie string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+m.address+"/ui/"+path, strings.NewReader(body))
		require.NoError(m.t, err)
		r.Header.Set("Dlite-Page", "1")
		r.Header.Set("Content-Type", "application/json")
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		answer, err := client.Do(r)
		require.NoError(m.t, err)
		require.Less(m.t, answer.StatusCode, 300, path)
		return answer
	}
	in := do(http.MethodPost, "session", fmt.Sprintf(`{"account":"acme","token":%q,"role":"operate"}`, tok), "")
	require.NoError(m.t, in.Body.Close())
	cookie := in.Header.Get("Set-Cookie")
	cookie, _, _ = strings.Cut(cookie, ";")
	var reading sync.WaitGroup
	for i := range openPages {
		path := "api/run-events"
		if i%2 == 1 {
			path = "api/events"
		}
		answer := do(http.MethodGet, path, "", cookie)
		reading.Go(func() {
			defer func() { _ = answer.Body.Close() }()
			for lines := bufio.NewReader(answer.Body); ; {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data: ") {
					messages.Add(1)
				}
			}
		})
	}
	return func() {
		cancel()
		reading.Wait()
		client.CloseIdleConnections()
	}, messages
}

// cpu returns the processor time of the program so far.
func (m *program) cpu() time.Duration {
	fields := strings.Fields(m.proc("stat"))
	user, err := strconv.Atoi(fields[13])
	require.NoError(m.t, err)
	system, err := strconv.Atoi(fields[14])
	require.NoError(m.t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss returns the memory of the program in MB.
func (m *program) rss() float64 {
	_, after, _ := strings.Cut(m.proc("status"), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(m.t, err)
	return float64(kb) / 1024
}

func (m *program) proc(file string) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", m.cmd.Process.Pid, file))
	require.NoError(m.t, err)
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	require.NoError(m.t, err)
	return string(b)
}
