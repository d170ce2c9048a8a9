package expression_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

const benchText = `docker build -t <+pipeline.variables.app>:<+codebase.shortCommitSha> --build-arg OS=<+matrix.os> .`

func benchScope() names {
	return names{
		"pipeline": names{"variables": names{"app": author("shop"), "url": author("https://<+pipeline.variables.app>.example")}},
		"codebase": names{"shortCommitSha": "0123456", "branch": "main"}, "matrix": names{"os": "linux"},
	}
}

// BenchmarkRender renders a text with three expressions.
func BenchmarkRender(b *testing.B) {
	tmpl, err := expression.Parse(benchText)
	require.NoError(b, err)
	env := &expression.Environment{Scope: benchScope()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(env); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenderNested renders a text with a variable that refers to another one.
func BenchmarkRenderNested(b *testing.B) {
	tmpl, err := expression.Parse(`curl <+pipeline.variables.url>/health`)
	require.NoError(b, err)
	env := &expression.Environment{Scope: benchScope()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	c, err := expression.ParseCondition(`<+codebase.branch> == "main" && <+matrix.os> != "windows"`)
	require.NoError(b, err)
	env := &expression.Environment{Scope: benchScope(), Secrets: expression.Refuse}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Decide(env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{"three": benchText, "plain": strings.Repeat("echo plain text without expressions\n", 100)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := expression.Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
