package definition

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bomb returns a document whose aliases expand to width to the power of levels.
func bomb(levels, width int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := 1; i < levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), ","))
	}
	b.WriteString("pipeline: *a" + fmt.Sprint(levels-1) + "\n")
	return b.String()
}

// The test is not parallel, so that it measures only its own memory.
func TestReadRefusesBombsBeforeItExpandsThem(t *testing.T) {
	indented := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, code string }{
		"aliases":           {bomb(9, 10), "too-large"},
		"aliases of merges": {"a: &a {k: 1}\nb: &b {<<: [" + several(1000, "*a") + "]}\nc: {<<: [" + several(1000, "*b") + "]}\n", "too-large"},
		"own alias":         {"pipeline: &a [*a]\n", "alias"},
		"flow depth":        {strings.Repeat("[", 200_000), "syntax"},
		"some flow depth":   {strings.Repeat("[", 150) + strings.Repeat("]", 150), "too-deep"},
		"block depth":       {indented(150), "too-deep"},
		"dashes":            {strings.Repeat("- ", 1_000_000), "syntax"},
		"commas":            {"[" + strings.Repeat("a,", 1_000_000) + "]", "too-large"},
		"lines":             {strings.Repeat("-\n", 1_000_000), "too-large"},
		"size":              {strings.Repeat("#", maxText+1), "too-large"},
		"comments":          {strings.Repeat("# ", 1_000_000), "empty"},
		"zero byte":         {"pipeline: \x00", "encoding"},
		"not UTF-8":         {"pipeline: \xff", "encoding"},
		"nothing":           {"", "empty"},
		"two documents":     {"a: 1\n---\nb: 2\n", "several-documents"},
		"list as a key":     {"? [a]\n: b\n", "syntax"},
		"foreign tag":       {"a: !!binary aGk=\n", "syntax"},
		"foreign list":      {"a: !go/struct [1]\n", "syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, problems := Read(source(c.text), Options{})
			runtime.ReadMemStats(&after)
			require.Len(t, problems, 1, problems)
			require.Equal(t, c.code, problems[0].Code, problems)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "bytes of memory")
		})
	}
}

func TestAnAliasChainAddsItsDepths(t *testing.T) {
	t.Parallel()
	_, problems := Read(source(bomb(120, 1)), Options{})
	require.ErrorContains(t, problems, "nested more than 100 levels")
}

func TestPlainScalarsKeepTheSpellingOfUnusualNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"": nil, "~": nil, "null": nil, "true": true, "False": false, "yes": "yes", "on": "on", "12": int64(12), "-3": int64(-3), "1.5": 1.5,
		"1.10": "1.10", "1.0": "1.0", "007": "007", "012345678901": "012345678901", "1e3": "1e3", "0x1f": "0x1f", "+1": "+1", "-": "-",
		"99999999999999999999": "99999999999999999999", "2026-11-22": "2026-11-22", "1_000": "1_000", "-0": "-0",
	} {
		require.Equal(t, want, plain(text), text)
	}
}

func TestTheReadEndsWithABoundedNumberOfProblems(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("pipeline:\n  identifier: x\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "  unknown%d: 1\n", i)
	}
	_, problems := Read(source(b.String()), Options{})
	require.LessOrEqual(t, len(problems), maxProblems+2)
	require.True(t, problems.Errors(), "the error about the stages must not be dropped")
}

// The documents have sizes at which a quadratic check would take minutes.
func TestReadAndLintEndSoonForLargeHostileDocuments(t *testing.T) {
	t.Parallel()
	list := func(n int, item string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, item, i)
		}
		return b.String()
	}
	const head = "pipeline:\n  identifier: p\n  name: p\n"
	stages := func(extra, steps string) string {
		return head + "  stages:\n    - stage: {identifier: s, name: s, type: CI" + extra + ", spec: {execution: {steps: [" + steps + "]}}}\n"
	}
	step := func(spec string) string { return "{step: {identifier: a, name: a, type: Run, spec: {" + spec + "}}}" }
	for name, text := range map[string]string{
		"references":     stages("", step(`command: "`+strings.Repeat("<+a.b>", 60_000)+`"`)),
		"comments":       stages("", step(`command: "`+strings.Repeat(" ", 1_000_000)+"#"+strings.Repeat("<+steps.x.status>", 30_000)+`"`)),
		"variables":      head + "  variables: [" + list(20_000, "{name: v%d, value: x},") + "]\n  stages: [{stage: {identifier: s, name: s, type: CI, spec: {execution: {steps: [" + step(`command: "`+strings.Repeat("<+pipeline.variables.v19999>", 20_000)+`"`) + "]}}}}]\n",
		"unknown keys":   head + list(60_000, "  descriptio%d: 1\n"),
		"dependencies":   stages(", dependsOn: ["+list(60_000, "stage%d,")+"]", step("command: a")),
		"axes":           stages(", strategy: {matrix: {"+list(30_000, "a%d: [1],")+" exclude: [{"+list(30_000, "b%d: 1,")+"}]}}", step("command: a")),
		"merges":         "a:\n" + list(30_000, "  - &a%d {k: 1}\n") + "b: {<<: [" + list(30_000, "*a%d,") + "]}\n" + stages("", step("command: a")),
		"underscores":    stages("", step(`command: "<+steps.`+strings.Repeat("_", 1_000_000)+`.status>"`)),
		"inputs":         stages(", tags: {"+list(30_000, "a%d: <+input>,")+"}", step("command: a")),
		"long path":      stages(", tags: {"+strings.Repeat("k", 500_000)+": {a: ["+strings.Repeat("<+input>,", 30_000)+"]}}", step("command: a")),
		"inputs in sets": stages("", step("command: a, envVariables: {"+list(30_000, "A%d: <+input>.default(x),")+"}")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := source(text)
			opts := Options{Partial: true, InputSets: []Source{{"set.yaml", []byte("inputSet: {pipeline: {tags: {a1: 1}}}")}}}
			p, problems := Read(s, opts)
			require.LessOrEqual(t, len(problems), maxProblems+2)
			if p != nil {
				problems = Lint(p, s)
				require.LessOrEqual(t, len(problems), maxProblems+2)
			}
			problems.Render(s)
		})
	}
}
