package pagetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
)

// controls are the roles of things that a person uses.
var controls = []string{"button", "link", "textbox", "searchbox", "combobox", "checkbox", "menuitem", "tab", "switch", "radio", "spinbutton", "listbox"}

// contrasts returns the texts of the page with too little contrast to their background, as "ratio text".
const contrasts = `(() => {
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return { r: n[0], g: n[1], b: n[2], a: n.length > 3 ? n[3] : 1 }; };
	const light = c => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
	const behind = el => { for (let e = el; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0.99) return c; } return parse(getComputedStyle(document.documentElement).backgroundColor); };
	const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const el = n.parentElement;
		if (!n.data.trim() || !el.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || el.closest('.unseen, option, :disabled')) continue;
		const a = light(parse(getComputedStyle(el).color)), b = light(behind(el));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.push(ratio.toFixed(2) + ' ' + n.data.trim().slice(0, 40) + ' <' + el.className + '>');
	}
	return [...new Set(bad)];
})()`

// tabbable returns the controls in the order of the document.
const tabbable = `[...document.querySelectorAll('a[href], button, input, select, [tabindex]')].filter(e => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({ visibilityProperty: true }) && !e.closest('dialog'))`

// A person who cannot see the page, or has no mouse, can use all of it.
func TestEveryControlHasARoleANameAndAPlace(t *testing.T) {
	m := site(t)
	run := start(t, m, api.RunRequest{YAML: shop, Branch: "main", Codebase: map[string]any{"branch": "main"}})
	ended(t, m, run.ID)
	p := open(t, m.URL+"/ui/")
	p.shows("h1", "Sign in")
	check(p, "sign-in", false)
	checkPhone(p, "sign-in")
	p.signIn(m)
	p.run(chromedp.EmulateViewport(1280, 1000))
	for _, c := range [][2]string{
		{"#/runs?pipeline=shop", "Shop #"},
		{"#/runs/" + run.ID, "price_test.go"},
		{"#/runs/" + run.ID + "?tab=details", "matrix.os"},
		{"#/runs/" + run.ID + "?view=timeline", "Unit tests"},
		{"#/runs/" + run.ID + "?view=results", "No step has reported"},
		{"#/runs/" + run.ID + "?view=expressions", "strategy.matrix.nodeName"},
		{"#/runs/" + run.ID + "?view=inputs", "codebase.branch"},
		{"#/runs/" + run.ID + "?view=logs", "58 lines · complete"},
		{"#/runs/" + run.ID + "?view=yaml", "identifier: shop"},
		{"#/stages?pipeline=shop", "Lint"},
		{"#/stages/" + stageOf(t, m, run.ID), "Prepare"},
		{"#/stages/" + stageOf(t, m, run.ID) + "?view=timeline", "Clean up"},
		{"#/delegates", "amd64"},
		{"#/limits", "Limits"},
		{"#/schedules", "Schedules"},
		{"#/triggers", "no triggers"},
		{"#/queue", "Nothing waits"},
		{"#/perpetual", "no perpetual tasks"},
		{"#/daemons", "no daemon sets"},
		{"#/connectors", "no connectors"},
		{"#/upgrades", "no update"},
	} {
		p.visit(c[0])
		p.shows("main", c[1])
		if c[0] == "#/delegates" {
			p.press("summary", "History")
			p.shows("details td", "registered")
		}
		check(p, c[0], true)
		checkPhone(p, c[0])
	}
	p.visit("#/runs/" + run.ID)
	const again = `[...document.querySelectorAll('button')].find(b => b.innerText === 'Run again' && b.checkVisibility())`
	p.until(again)
	p.run(act(again+`.focus()`), chromedp.KeyEvent("\r"))
	p.shows("dialog h2", "Run again?")
	assert.True(t, value[bool](p, `document.querySelector('dialog').contains(document.activeElement)`), "the focus is in the dialog")
	p.run(chromedp.KeyEvent("\x1b"))
	p.until(`!document.querySelector('dialog')`)
	assert.Equal(t, "Run again", value[string](p, `document.activeElement.innerText`), "the focus comes back")
}

// phone is the width of a small phone.
const phone = 360

// wide returns the elements that reach beyond the right edge of the page and cannot be scrolled into view.
const wide = `[...document.querySelectorAll('main *, header *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .graph, .tabs, .lines, .yaml, .unseen')).map(e => e.tagName + '.' + e.className)`

// checkPhone tests that nothing but tables, logs and graphs must be scrolled to the side.
func checkPhone(p *tab, where string) {
	p.t.Helper()
	p.run(chromedp.EmulateViewport(phone, 740))
	assert.LessOrEqual(p.t, value[int](p, `document.documentElement.scrollWidth`), phone, "%s: the page is wider than a phone: %s", where, value[[]string](p, wide))
	p.run(chromedp.EmulateViewport(1280, 1000))
}

// stageOf returns the id of the first stage of a run at the manager.
func stageOf(t *testing.T, m *machine.Machine, id string) string {
	t.Helper()
	run, err := m.Pipelines.Run(t.Context(), machine.Account, id)
	require.NoError(t, err)
	for i := range run.Nodes {
		if run.Nodes[i].Kind == "stage" {
			return run.Nodes[i].StageID
		}
	}
	t.Fatal("the run has no stage")
	return ""
}

// Nothing moves for a person who does not want it.
func TestNothingMovesWithReducedMotion(t *testing.T) {
	m := site(t)
	gate := filepath.Join(t.TempDir(), "gate")
	p := signedIn(t, m)
	run := start(t, m, api.RunRequest{YAML: live(gate)})
	p.visit("#/runs/" + run.ID)
	p.shows(".line", "before")
	p.shows(".run-title .badge", "running")
	for value, moves := range map[string]bool{"reduce": false, "no-preference": true} {
		ctx, cancel := contextOf(p)
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: value}}})
		cancel()
		require.NoError(t, err)
		p.until(fmt.Sprintf(`(document.getAnimations().length > 0) === %t`, moves))
	}
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	p.shows(".run-title .badge", "succeeded")
}

// A touch shows why a button cannot be used: there is no pointer that could rest on it.
func TestATouchShowsWhyAButtonIsDisabled(t *testing.T) {
	m := site(t)
	p := signedIn(t, m)
	p.visit("#/queue")
	p.shows("h1", "Queue")
	const abort = `[...document.querySelectorAll('button')].find(b => b.innerText === 'Abort' && b.checkVisibility())`
	p.until(abort)
	p.run(chromedp.EmulateViewport(phone, 740, chromedp.EmulateMobile, chromedp.EmulateTouch))
	at := value[[]float64](p, `(r => [r.x + r.width / 2, r.y + r.height / 2])((`+abort+`.scrollIntoView(), `+abort+`.getBoundingClientRect()))`)
	p.run(chromedp.TapXY(at[0], at[1]))
	p.shows(".hint", "Select the stages to abort")
}

func check(p *tab, where string, shell bool) {
	p.t.Helper()
	for _, mode := range []string{"light", "dark"} {
		p.media(mode)
		assert.Empty(p.t, value[[]string](p, contrasts), "%s, %s: contrast", where, mode)
	}
	checkTree(p, where, shell)

	all := value[int](p, tabbable+`.length`)
	p.run(act(`document.activeElement.blur(), window.order = []`))
	for range min(all, 60) {
		p.run(chromedp.KeyEvent("\t"), act(`window.order.push(`+tabbable+`.indexOf(document.activeElement))`))
	}
	order := value[[]int](p, `window.order`)
	order = slices.DeleteFunc(order, func(i int) bool { return i < 0 }) // the browser's own controls
	first := slices.Index(order, slices.Min(order))
	order = append(slices.Clone(order[first:]), order[:first]...)
	assert.True(p.t, slices.IsSorted(order), "%s: the focus goes %v", where, order)
}

// checkTree reads the tree that screen readers get.
func checkTree(p *tab, where string, shell bool) {
	p.t.Helper()
	ctx, cancel := contextOf(p)
	defer cancel()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(p.t, err)
	roles := map[string]int{}
	level, h1 := 0.0, 0
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role, name := text(n.Role), text(n.Name)
		roles[role]++
		if slices.Contains(controls, role) {
			assert.NotEmpty(p.t, strings.TrimSpace(name), "%s: a %s without a name", where, role)
		}
		if role == "heading" {
			now := 0.0
			for _, property := range n.Properties {
				if property.Name == "level" {
					_ = json.Unmarshal(property.Value.Value, &now)
				}
			}
			assert.LessOrEqual(p.t, now, level+1, "%s: heading %q skips a level", where, name)
			if level = now; now == 1 {
				h1++
			}
		}
	}
	assert.Equal(p.t, 1, h1, "%s: headings of level 1", where)
	assert.Equal(p.t, 1, roles["main"], "%s: main", where)
	if shell {
		assert.NotZero(p.t, roles["banner"], where)
		assert.NotZero(p.t, roles["navigation"], where)
	}
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	if json.Unmarshal(v.Value, &s) != nil {
		return fmt.Sprint(string(v.Value))
	}
	return s
}
