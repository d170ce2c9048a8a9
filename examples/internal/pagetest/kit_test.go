package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/pipeline"
)

// All tests share a browser and, unless they break it, a machine.
var (
	browser struct {
		once  sync.Once
		ctx   context.Context
		close func()
		err   error
	}
	shared struct {
		once    sync.Once
		machine *machine.Machine
		err     error
	}
)

// browserPath names the browser that this process becomes.
const browserPath = "DLITE_TEST_BROWSER"

func TestMain(m *testing.M) {
	if path := os.Getenv(browserPath); path != "" {
		fmt.Println(becomeBrowser(path))
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "dlite-page-")
	if err != nil {
		panic(err)
	}
	sharedDir = dir
	code := m.Run()
	if browser.close != nil {
		browser.close()
	}
	if shared.machine != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // the stages that a test has left end now
		if err := shared.machine.Close(ctx); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

var sharedDir string

// patience bounds each wait of a test. A loaded machine draws few frames in a second.
const patience = 2 * time.Minute

func startBrowser() {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		browser.err = exec.ErrNotFound
		return
	}
	self, err := os.Executable()
	if err != nil {
		browser.err = err
		return
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(self), chromedp.NoSandbox, chromedp.Flag("lang", "en-US"),
		chromedp.Env("TZ=UTC", browserPath+"="+path), chromedp.WSURLReadTimeout(patience), chromedp.Flag("force-prefers-reduced-motion", true))
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	browser.ctx = ctx
	browser.close = func() { cancel(); closeAllocator() }
	browser.err = chromedp.Do(ctx)
}

// site returns the machine of all tests.
func site(t *testing.T) *machine.Machine {
	t.Helper()
	shared.once.Do(func() {
		// The engine knows approvals; the settings only permit the type.
		settings, err := pipeline.ReadSettings([]byte("types: {HarnessApproval: {image: example/none}}"))
		if err != nil {
			shared.err = err
			return
		}
		shared.machine, shared.err = machine.Start(context.Background(), machine.Config{Dir: sharedDir, Stages: 4, Settings: settings, Log: zerolog.Nop()})
	})
	require.NoError(t, shared.err)
	return shared.machine
}

// tab is a page of the browser with its own cookies.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	problems []string // messages of the console that no page should have
	expected []string // parts of messages that the test causes
}

// open opens a page. At the end of the test, the browser must have reported no error.
func open(t *testing.T, base string) *tab {
	t.Helper()
	return openWith(t, base, "")
}

// openWith opens a page in which a script runs before those of the page.
func openWith(t *testing.T, base, script string) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		testbed.Unavailable(t, "chromium", "%v", browser.err)
	}
	p := &tab{t: t, base: base}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.listen))
	p.ctx = ctx
	require.NoError(t, chromedp.Do(ctx)) // opens the tab for as long as ctx
	t.Cleanup(func() {
		if t.Failed() {
			p.dump()
		}
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Empty(t, p.problems, "messages of the browser")
	})
	if script != "" {
		ctx, cancel := contextOf(p)
		defer cancel()
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		require.NoError(t, err)
	}
	p.run(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(base))
	return p
}

func (p *tab) listen(event any) {
	message := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		message = fmt.Sprint("exception: ", e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			message = e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			message = fmt.Sprint("console.error: ", e.Args)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.expected {
		if strings.Contains(message, part) {
			return
		}
	}
	if message != "" {
		p.problems = append(p.problems, message)
	}
}

// expect permits messages of the browser with this text.
func (p *tab) expect(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, part)
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, actions...))
}

// dump shows the page at the time when the test failed.
func (p *tab) dump() {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.hash + "\n" + document.body.innerText`))
	p.t.Log("the page:", text, err)
}

// value evaluates an expression in the page.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, expression)
	return out
}

// until waits until an expression is true in the page. It asks again and again: the policy of the page permits no code that a
// text becomes, which the browser would need to wait by itself.
func (p *tab) until(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`Boolean(`+expression+`)`))
		require.NoError(p.t, err, expression)
		if ok {
			return
		}
		require.NoError(p.t, chromedp.Do(ctx, chromedp.Sleep(between)), expression)
	}
}

// between is the time between two looks at the page.
const between = 25 * time.Millisecond

// shows waits until an element has a text.
func (p *tab) shows(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`[...document.querySelectorAll(%s)].some(e => e.checkVisibility() && e.innerText.includes(%s))`, quote(selector), quote(text)))
}

// press clicks the first visible element with a text, or whose label it is.
func (p *tab) press(selector, text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%s)].find(e => e.checkVisibility() && !e.disabled && e.ariaDisabled !== 'true' && (e.innerText.trim() === %[2]s || e.getAttribute('aria-label') === %[2]s))`, quote(selector), quote(text))
	p.until(find)
	p.run(act(find + `.click()`))
}

// enter types into a field, which its label names.
func (p *tab) enter(label, text string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll('input')].find(e => e.checkVisibility() && (e.getAttribute('aria-label') === %[1]s || [...e.labels || []].some(l => l.innerText === %[1]s)))`, quote(label))
	p.until(find)
	p.run(act(find+`.focus()`), act(find+`.select()`), chromedp.KeyEvent(text))
}

// visit changes the address of the page.
func (p *tab) visit(hash string) {
	p.t.Helper()
	p.run(act(`location.hash = ` + quote(hash)))
}

func contextOf(p *tab) (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, patience)
}

// act evaluates an expression for its effect.
func act(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](expression)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// signedIn opens the page of a machine with a session.
func signedIn(t *testing.T, m *machine.Machine) *tab {
	t.Helper()
	p := open(t, m.URL+"/ui/")
	p.signIn(m)
	return p
}

func (p *tab) signIn(m *machine.Machine) {
	p.t.Helper()
	token, err := m.Token(time.Hour)
	require.NoError(p.t, err)
	p.enter("Account", machine.Account)
	p.enter("Token", token)
	p.press("button", "Sign in")
	p.shows("h1", "Runs")
}

// start starts a run.
func start(t *testing.T, m *machine.Machine, req api.RunRequest) api.Run {
	t.Helper()
	run, err := m.Pipelines.Start(t.Context(), machine.Account, req)
	require.NoError(t, err)
	return run
}

// ended waits for the end of a run.
func ended(t *testing.T, m *machine.Machine, id string) api.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for since := int64(0); ; {
		change, err := m.Pipelines.Changes(ctx, machine.Account, id, since)
		require.NoError(t, err)
		since = change.Run.Version
		if !change.Run.EndedAt.IsZero() {
			return change.Run
		}
	}
}
