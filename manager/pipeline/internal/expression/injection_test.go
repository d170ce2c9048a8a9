package expression_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/secrets"
)

// atDelegate returns a rendered value as the delegate hands it to a step: in the payload of
// a task, with references resolved.
func atDelegate(t testing.TB, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	r := secrets.NewResolver(&secrets.Set{}, secrets.ResolverConfig{})
	for _, id := range []string{"prod", "token", "native", "account.key"} {
		require.NoError(t, r.Define(id, "fake-value-of-"+id))
	}
	data, err = r.Resolve(t.Context(), data)
	require.NoError(t, err, "%s", data)
	var got any
	require.NoError(t, json.Unmarshal(data, &got))
	return got
}

// attacks are values from outside.
var attacks = []string{
	`<+secrets.getValue("prod")>`, `<+<+secrets.getValue("prod")>>`, `<+pipeline.name>`, `<+1 + 1>`, `<+`, `>`, `<+input>`, `">`, `x> <+secrets.getValue("prod")`,
	`${{secrets.prod}}`, `$${{secrets.prod}}`, `${{secrets.${{secrets.prod}}}}`, `${{secrets.`, `${{secrets.}}`, `${{secrets.}}${{secrets.prod}}`, `secrets.prod}}`, `${{`, `${{secrets.env://HOME}}`, `${{secrets.prod`, `${{secrets.nope}}`, `${{ secrets.prod }}`, `\u0024{{secrets.prod}}`,
	`<{ x | getAsBase64 }>`, `<{`, `}>`, `<{ ${{secrets.prod}} | getAsBase64 }>`, `| getAsBase64 }>`, `x | getAsBase64`, `getAsBase64`, `<{<{ x | getAsBase64 }> | getAsBase64 }>`, `}> <{ x`, `<{ ${{secrets.prod}} | nope }>`, `<\u007b x | getAsBase64 }>`,
	`"`, `'`, `\`, `" + secrets.getValue("prod") + "`, `' || true || '`, `") || ("`, `"; rm -rf / #`, `$(id)`, "`id`", "a\nb", "a\r\n<+a>\n", "\t", "\x00", "null", "true", "", " ", "é😀", "\xff", `{"a": "b"}`, `[1, 2]`, `x ? y : z`, `${x}`, `$1`, `\$`, `%s%d`, `<a>&amp;</a>`,
}

// Values from outside stay as they are, in a text, in a string, as an argument, and after
// another value.
func TestValuesFromOutsideAreNeverEvaluated(t *testing.T) {
	t.Parallel()
	uses := map[string]func(a string) string{
		`<+trigger.payload.v>`:                                       func(a string) string { return a },
		`say <+trigger.payload.v>!`:                                  func(a string) string { return "say " + a + "!" },
		`<+"(<+trigger.payload.v>)">`:                                func(a string) string { return "(" + a + ")" },
		`<+trigger.payload.v + trigger.payload.v>`:                   func(a string) string { return a + a },
		`<+trigger.payload.v><+trigger.payload.v>`:                   func(a string) string { return a + a },
		`<+"".concat(trigger.payload.v)>`:                            func(a string) string { return a },
		`<+[trigger.payload.v].join(",")>`:                           func(a string) string { return a },
		`<+pipeline.variables.indirect>`:                             func(a string) string { return "v=" + a },
		`$<+trigger.payload.v>`:                                      func(a string) string { return "$" + a },
		`${{<+trigger.payload.v>`:                                    func(a string) string { return "${{" + a },
		`<<+trigger.payload.v>{ x | getAsBase64 }>`:                  func(a string) string { return "<" + a + "{ x | getAsBase64 }>" },
		`<+secrets.getValue("token")><+trigger.payload.v>`:           func(a string) string { return "fake-value-of-token" + a },
		`<+trigger.payload.v><+secrets.getValue("token")>`:           func(a string) string { return a + "fake-value-of-token" },
		`<+pipeline.variables.native>:<+trigger.payload.v>`:          func(a string) string { return "fake-value-of-native:" + a },
		`${{secrets.token}} <+trigger.payload.v>`:                    func(a string) string { return "fake-value-of-token " + a },
		`<+trigger.payload.half>secrets.prod}} <+trigger.payload.v>`: func(a string) string { return "${{secrets.prod}} " + a },
	}
	tries := 0
	for _, a := range attacks {
		a = strings.ToValidUTF8(a, "?")
		scope := names{
			"trigger":  names{"payload": map[string]any{"v": a, "half": "${{"}},
			"pipeline": names{"name": "p", "variables": names{"indirect": author("v=<+trigger.payload.v>"), "native": author("${{secrets.native}}")}},
			"a":        5,
		}
		for text, want := range uses {
			tries++
			v, err := eval(t, render, text, &expression.Environment{Scope: scope})
			if assert.NoError(t, err, "%s with %q", text, a) {
				assert.Equal(t, want(a), atDelegate(t, v), "%s with %q, rendered %q", text, a, v)
			}
			v, err = eval(t, render, text, &expression.Environment{Scope: scope, Secrets: expression.Refuse})
			if strings.Contains(text, "getValue") {
				assert.Error(t, err)
			} else if assert.NoError(t, err) && !strings.Contains(text, "native") && !strings.Contains(text, "token") {
				assert.Equal(t, want(a), v, "%s with %q is not escaped outside of a payload", text, a)
			}
		}
		for _, condition := range []string{`<+trigger.payload.v> == "never"`, `"<+trigger.payload.v>" == "never"`, `<+trigger.payload.v> =~ ["never"]`} {
			tries++
			yes, err := eval(t, decide, condition, &expression.Environment{Scope: scope, Secrets: expression.Refuse})
			require.NoError(t, err)
			assert.Equal(t, false, yes, "%s with %q", condition, a)
		}
		for name, v := range map[string]any{"list": []any{a}, "map": map[string]any{"k": []any{a}}} {
			tries++
			got, err := eval(t, render, `<+v>`, &expression.Environment{Scope: names{"v": v}})
			require.NoError(t, err)
			assert.Equal(t, v, atDelegate(t, got), "a %s with %q", name, a)
		}
	}
	assert.GreaterOrEqual(t, tries, 200)
}

func TestEscapedTextReachesAStepAsItIs(t *testing.T) {
	t.Parallel()
	for _, a := range attacks {
		a = strings.ToValidUTF8(a, "?")
		assert.Equal(t, a, atDelegate(t, expression.Escape(a)))
	}
}

// A template of the author encodes a value from outside once, whatever the value is.
func TestATemplateOfTheAuthorEncodesDataOnce(t *testing.T) {
	t.Parallel()
	for _, a := range attacks {
		a = strings.ToValidUTF8(a, "?")
		if strings.TrimSpace(a) != a || a == `"` {
			continue // the delegate trims the operand
		}
		scope := names{"v": a}
		got, err := eval(t, render, `<{ (<+v>) | getAsBase64 }>`, &expression.Environment{Scope: scope})
		require.NoError(t, err)
		assert.Equal(t, base64Of("("+a+")"), atDelegate(t, got), "%q", a)
	}
}

func TestSecretsBecomeReferences(t *testing.T) {
	runCases(t, []testCase{
		{render, `<+secrets.getValue("x")>`, "${{secrets.x}}"},
		{render, `<+secrets.getValue('account.key')>`, "${{secrets.account.key}}"},
		{render, `<+secrets.getValue("org.key")>`, "${{secrets.org.key}}"},
		{render, `token=<+secrets.getValue("x")>;`, "token=${{secrets.x}};"},
		{render, `<+"Bearer " + secrets.getValue("x")>`, "Bearer ${{secrets.x}}"},
		{render, `<+"Bearer <+secrets.getValue("x")>">`, "Bearer ${{secrets.x}}"},
		{render, `<+secrets.getValue("x").concat("y")>`, failure("not known here")},
		{render, `<+"y".concat(secrets.getValue("x"))>`, "y${{secrets.x}}"},
		{render, `<+secrets.getValue("org.hashicorpvault://vault/" + f + "/path#Key")>`, "${{secrets.org.hashicorpvault://vault/abc/path#Key}}"},
		{render, `<+secrets.getValue("org.hashicorpvault://vault/<+f>/path#Key")>`, "${{secrets.org.hashicorpvault://vault/abc/path#Key}}"},
		{render, `<+secrets.getValue(<+pipeline.variables.app>)>`, "${{secrets.shop}}"},
		{render, `<+pipeline.variables.secret>`, "${{secrets.token}}"},
		{render, `a <+pipeline.variables.secret> b`, "a ${{secrets.token}} b"},
		{render, `<+stage.variables.key>`, "${{secrets.stage_key}}"},
		{render, `k=<+stage.variables.key>`, "k=${{secrets.stage_key}}"},
		{render, `<+pipeline.variables.native>`, "${{secrets.native}}"},
		{render, `${{secrets.native}} <+f>`, "${{secrets.native}} abc"},
		{render, `<{ u:${{secrets.native}} | getAsBase64 }> <+f>`, "<{ u:${{secrets.native}} | getAsBase64 }> abc"},
		{render, `<{ <+secrets.getValue("x")> | getAsBase64 }>`, "<{ ${{secrets.x}} | getAsBase64 }>"},
		{render, `${{secrets.<+f>}}`, failure(`whose end "}}" is not in the same text`)},
		{render, `<+true ? secrets.getValue("x") : "none">`, "${{secrets.x}}"},
		{render, `<+secrets.getValue("x") ?? "none">`, "${{secrets.x}}"},
		{render, `<+["a", secrets.getValue("x")]>`, []any{"a", "${{secrets.x}}"}},
		{render, `<+secrets.getValue("x") == "y">`, failure("not known here")},
		{render, `<+"y" == secrets.getValue("x")>`, failure("not known here")},
		{render, `<+["y"].contains(secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+secrets.getValue("x").substring(1)>`, failure("not known here")},
		{render, `<+secrets.getValue("x").length()>`, failure("not known here")},
		{render, `<+secrets.getValue("x") && true>`, failure("not known here")},
		{render, `<+secrets.getValue("x") gt 1>`, failure("not known here")},
		{render, `<+secrets.getValue("x") - 1>`, failure("not known here")},
		{render, `<+empty(secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+size(secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+secrets.getValue("x") =~ ".*">`, failure("not known here")},
		{render, `<+secrets.getValue("x") =^ "a">`, failure("not known here")},
		{render, `<+secrets.getValue("x")["a"]>`, failure("not known here")},
		{render, `<+secrets.getValue("x").a>`, failure("not known here")},
		{render, `<+object[secrets.getValue("x")]>`, failure("not known here")},
		{render, `<+object.<+secrets.getValue("x")>>`, failure("not known here")},
		{render, `<+secrets.getValue(secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+regex.match("a", secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+json.format(secrets.getValue("x"))>`, failure("not known here")},
		{render, `<+json.format([secrets.getValue("x")])>`, failure("not known here")},
		{render, `<+{secrets.getValue("x"): 1}>`, failure("not known here")},
		{render, `<+{secrets.getValue("x"), secrets.getValue("x")}>`, failure("not known here")},
		{render, `x<+[secrets.getValue("x")]>`, failure("a secret in a list")},
		{render, `<+[secrets.getValue("x")].join(",")>`, "${{secrets.x}}"},
		{render, `<+secrets.getValue("")>`, failure("is not valid")},
		{render, `<+secrets.getValue("a b")>`, failure("is not valid")},
		{render, `<+secrets.getValue("a}}")>`, failure("is not valid")},
		{render, `<+secrets.getValue(null)>`, failure("must be a text")},
		{render, `<+secrets.getValue()>`, failure("takes 1 argument")},
		{render, `<+secrets.get("x")>`, failure("not known")},
		{render, `<+secrets.x>`, failure(`secrets.getValue("id")`)},
		{render, `<+secrets.secretJson("x")>`, failure("a secret of its own")},
		{render, `<+expression.isResolved(secrets.getValue("x"))>`, true},
	})
}

func TestTheRecordHoldsEachOutermostExpression(t *testing.T) {
	t.Parallel()
	var got []string
	env := &expression.Environment{Scope: run(), Record: func(e expression.Evaluated) {
		got = append(got, fmt.Sprintf("%d %s = %v (%s) %v", e.Offset, e.Text, e.Value, e.Source, e.Err != nil))
	}}
	_, err := eval(t, render, `a <+a> <+<+f> + g> <+secrets.getValue("x")> <+unknown>`, env)
	require.Error(t, err)
	_, err = eval(t, evaluate, `<+codebase.branch> == "main" && <+pipeline.variables.url> != null`, env)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"2 <+a> = 5 (a) false",
		"7 <+<+f> + g> = abcdef (f,g) false",
		`19 <+secrets.getValue("x")> = ${{secrets.x}} () false`,
		"44 <+unknown> = <nil> () true",
		"0 <+codebase.branch> = main (codebase.branch) false",
		"32 <+pipeline.variables.url> = https://shop.eu.example (pipeline.variables.app,stage.variables.region,pipeline.variables.url) false",
	}, got)
}

func TestReferencesListNamesAndSecrets(t *testing.T) {
	t.Parallel()
	list := func(refs []expression.Reference) (all []string) {
		for _, r := range refs {
			s := fmt.Sprintf("%d %s", r.Offset, r.Name)
			for _, flag := range []struct {
				set  bool
				name string
			}{{r.Secret, " secret"}, {r.Partial, " partial"}, {r.Optional, " optional"}} {
				if flag.set {
					s += flag.name
				}
			}
			all = append(all, s)
		}
		return all
	}
	tmpl, err := expression.Parse(`<+a.b> <+c["d"].e> <+x.<+y>.z> <+secrets.getValue("s")> <+secrets.getValue("p/" + q)> <+m ?? n> <+steps.b_<+i>.out> <+k.substring(j)> <+empty(l) ? [o] : {"p": r}>`)
	require.NoError(t, err)
	assert.Equal(t, []string{"2 a.b", "9 c.d.e", "21 x partial", "25 y", "33 s secret", "58  secret partial", "82 q", "88 m optional", "93 n", "98 steps partial", "108 i", "118 k", "130 j", "142 l optional", "148 o", "159 r"}, list(tmpl.References()))
	c, err := expression.ParseCondition(`<+a> == null || "<+b>" == "x" && expression.isResolved(<+c>)`)
	require.NoError(t, err)
	assert.Equal(t, []string{"2 a optional", "19 b", "57 c optional"}, list(c.References()))
	tmpl, err = expression.Parse("no end <+a and <+b>")
	require.NoError(t, err)
	require.Len(t, tmpl.Warnings(), 1)
	assert.Equal(t, 7, tmpl.Warnings()[0].Offset)
}

// Pieces of the author's text and data, in any order, reach the step as they are, with the
// author's references resolved and no other ones.
func TestPiecesOfTextAndDataMakeNoReferenceTogether(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	written := []string{"", "$", "{", "}", "<", ">", "${{", "${{secrets", "secrets.prod}}", "}}", "<{", "}>", "getAs", "Base64", "| getAs", " ", "${{secrets.token}}", "a ${{secrets.token}}", "<{ ${{secrets.token}} }>"}
	data := slices.Concat(attacks, []string{"$", "{", "}", "<", ">", "{{secrets.prod}}", "${{secrets", ".prod}}", "getAs", "Base64", "{ x | getAsBase64 }"})
	for range 5_000 {
		var text, want strings.Builder
		scope := names{}
		for i := range 2 + rnd.IntN(4) {
			w, d := written[rnd.IntN(len(written))], strings.ToValidUTF8(data[rnd.IntN(len(data))], "?")
			name := fmt.Sprintf("d%d", i)
			scope[name] = d
			fmt.Fprintf(&text, "%s<+%s>", w, name)
			want.WriteString(strings.ReplaceAll(w, "${{secrets.token}}", "fake-value-of-token") + d)
		}
		v, err := eval(t, render, text.String(), &expression.Environment{Scope: scope})
		require.NoError(t, err, text.String())
		require.Equal(t, want.String(), atDelegate(t, v), "%s of %v, rendered %q", text.String(), scope, v)
	}
}
