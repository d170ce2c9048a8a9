package yaml

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSubstituteReplacesExpressions(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "abc/def", "B": "x", "LINES": "one\ntwo", "FILE": "path/to/file.tar.gz", "UPPER": "ÄBC"}
	for text, want := range map[string]string{
		"plain $A $(A) {A} $":                                "plain $A $(A) {A} $",
		"${A} ${NONE}.":                                      "abc/def .",
		"$${A} $$ $$$A $$${B}":                               "${A} $ $$A $x",
		`s/\//-/ \\ \n`:                                      `s///-/ \ \n`,
		`\${A}`:                                              `\abc/def`,
		"${LINES}":                                           `"one\ntwo"`,
		"${NONE:-a} ${NONE:=b} ${NONE=c}":                    "a b c",
		"${NONE:?a} ${NONE:+b} ${A:+b}":                      "a b abc/def", // as Drone, not as a shell
		"${NONE:-} ${A:-x}":                                  " abc/def",
		"${NONE:-a${B}-${NONE=c}d}":                          "ax-cd",
		"${A^} ${A^^} ${UPPER,} ${UPPER,,} ${NONE^}":         "Abc/def ABC/DEF äBC äbc ",
		"${#A} ${#NONE}":                                     "7 0",
		"${A:1:2} ${A:4} ${A:-9} ${A:0:99} ${A:9:1}":         "bc def abc/def abc/def ",
		"${A:x} ${A:1:x} ${A:0:${B}}":                        "abc/def abc/def abc/def",
		"${FILE#*/} ${FILE##*/} ${FILE%.*} ${FILE%%.*}":      "to/file.tar.gz file.tar.gz path/to/file.tar path/to/file",
		"${A#b} ${A%?} ${A#[a-b]} ${A##[^/]*/} ${A%%x*}":     "abc/def abc/de bc/def def abc/def",
		"${A/b/x} ${A//[/x} ${A/#ab/x} ${A/%ef/x} ${A/#x/y}": "axc/def abc/def xc/def abc/dx abc/def",
		`${A/\//-} ${A//b/} ${A/${NONE}b/x}`:                 "", // an expression is a whole argument
		"${A/b/$$} ${A/b/${B}}":                              "a$c/def axc/def",
	} {
		if want == "" {
			_, err := substitute([]byte(text), vars)
			assert.Error(t, err, text)
			continue
		}
		got, err := substitute([]byte(text), vars)
		require.NoError(t, err, text)
		assert.Equal(t, want, string(got), text)
	}
}

func TestSubstituteRefusesInvalidExpressions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb ${A":                               `line 2: the expression "${A": it has no closing brace`,
		"${}":                                    "it has no name: write $${",
		"${@}":                                   "it has no name",
		"${A-b}":                                 "it has no closing brace, or is not supported",
		"${A[0]}":                                "it has no closing brace, or is not supported",
		"${A//b}":                                "it has no closing brace",
		"${A:-b\n}":                              "it has no closing brace",
		"${A:0:-1}":                              "the length -1 is negative",
		"${A#[}":                                 "is not closed",
		"${A#" + strings.Repeat("*", 2000) + "}": "its pattern has 2000 bytes",
		strings.Repeat("${A:-", 30) + strings.Repeat("}", 30):            "more than 20 expressions",
		strings.Repeat("${BIG}", 100):                                    "produce more than 1048576 bytes",
		"${BIG//a/" + strings.Repeat("b", 1000) + "}":                    "produce more than 1048576 bytes",
		strings.Repeat("${BIG##x*"+strings.Repeat("[a-z]", 100)+"}", 50): "take too long",
		strings.Repeat("${BIG:0:1}", 1000):                               "take too long",
		"x\x00y":                                                         "zero byte",
		"\xff":                                                           "not UTF-8",
	} {
		_, err := substitute([]byte(text), map[string]string{"A": "abc", "BIG": strings.Repeat("a", 20_000)})
		assert.ErrorContains(t, err, want, text)
	}
}

// The value of a variable cannot add a member to a file.
func TestAValueStaysOnItsLine(t *testing.T) {
	t.Parallel()
	text, err := substitute([]byte("kind: pipeline\nname: ${MESSAGE}\nsteps: [{name: a, image: b}]\n"), map[string]string{"MESSAGE": "a\nclone: {disable: true}"})
	require.NoError(t, err)
	c, err := parse(text)
	require.NoError(t, err)
	require.Equal(t, "a\nclone: {disable: true}", c.pipelines[0].Name)
	require.False(t, c.pipelines[0].clone.disable)
}

func FuzzSubstitute(f *testing.F) {
	for _, text := range []string{
		"${A} $${A} $$", "${A:-${B}c}", "${A:1:2}${A: -1}", "${A##*/}${A%%[a-z]}", "${A//b/${B}}", `${A/\//-}`, "${#A}${A^^}", "${A:0:-9}", "${A#[^]]*}",
	} {
		f.Add(text, "abc/def", "x\ny")
	}
	f.Fuzz(func(t *testing.T, text, a, b string) {
		if len(text)+len(a)+len(b) > 1<<16 {
			return
		}
		got, err := substitute([]byte(text), map[string]string{"A": a, "B": b})
		if err != nil {
			return
		}
		if len(got) > len(text)+maxText {
			t.Fatalf("%d bytes from %d", len(got), len(text))
		}
		if !strings.ContainsAny(text, `$\`) && string(got) != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}
