package pagetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	p.signIn(m)
	p.run(chromedp.EmulateViewport(1280, 1000))
	for _, c := range [][2]string{
		{"#/runs?pipeline=shop", "Shop #"},
		{"#/runs/" + run.ID, "price_test.go"},
		{"#/runs/" + run.ID + "?tab=details", "matrix.os"},
		{"#/runs/" + run.ID + "?view=timeline", "Unit tests"},
		{"#/runs/" + run.ID + "?view=logs", "58 lines · complete"},
		{"#/runs/" + run.ID + "?view=yaml", "identifier: shop"},
		{"#/stages?pipeline=shop", "Lint"},
		{"#/delegates", "amd64"},
		{"#/limits", "Limits"},
		{"#/triggers", "no triggers"},
		{"#/queue", "Nothing waits"},
	} {
		p.visit(c[0])
		p.shows("main", c[1])
		check(p, c[0], true)
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
