package expression_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/secrets"
)

var seeds = []string{
	`<+a> + <+b>`, `<+<+a> + <+b>>`, `<+ <+a>==5?<+f>:<+g> >`, `<+pipeline.variables.<+h>>`, `<+<+v5>.replace('-','')>`, `"<+f>" == 'abc'`, `<+a.b["c"]?.d[0].get(1)>`, `<+{"a": [1, 2.5, {:}], 'b': {1, 2}}>`,
	`<+secrets.getValue("x")> ${{secrets.native}} <{ <+v> | getAsBase64 }>`, `<+json.select("a[?(@.b == 'c')]", v)>`, `<+xml.select("//a[@b='c'][1]/text()", v)>`, `<+regex.replace("(a+)", "$1", v)>`, `<+currentDate().plusMonths(3)>`, `!(empty(x) && size(y) >= 3) ?: z ?? "n"`,
	`<+input>.default(a)`, `<+`, `<+"`, `<+<+<+>>>`, `<+a > 3>`, `<+(a > 3)>`, `<+x.split("[,;]")[1].trim()>`, "<+a\n\t>", `<+1e9 * -2 % 3>`, `<+pipeline.variables.url> <+stage.variables.key>`, `<+codebase.prTitle>`, `<+items.join("-")>`, `<+"\u00e9\\">`,
}

// Parse ends for every text, and its parts and errors lie inside the text.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		check := func(err error) {
			var syntax *expression.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(text) || syntax.Text == "" {
				t.Fatalf("%q: %v", text, err)
			}
		}
		inside := func(refs []expression.Reference) {
			for _, r := range refs {
				if r.Offset < 0 || r.Offset >= len(text) {
					t.Fatalf("%q: %+v", text, r)
				}
			}
		}
		tmpl, err := expression.Parse(text)
		if err != nil {
			check(err)
		} else {
			inside(tmpl.References())
			if literal, ok := tmpl.Literal(); ok && literal != text {
				t.Fatalf("%q is the literal %q", text, literal)
			}
			if !strings.Contains(text, "<+") {
				if _, ok := tmpl.Literal(); !ok {
					t.Fatalf("%q is not a literal", text)
				}
			}
		}
		c, err := expression.ParseCondition(text)
		if err != nil {
			check(err)
			return
		}
		inside(c.References())
		c.Warnings()
	})
}

// Render keeps its bounds, gives the same value each time, and data reaches the step as it is.
func FuzzRender(f *testing.F) {
	for i, s := range seeds {
		f.Add(s, attacks[i%len(attacks)])
	}
	f.Fuzz(func(t *testing.T, text, data string) {
		if !utf8.ValidString(text) || !utf8.ValidString(data) {
			return
		}
		scope := outwards{names{"v": data, "x": data}, run()[0], run()[1]}
		env := &expression.Environment{Scope: scope, Time: runTime, Limits: expression.Limits{Steps: 10_000, Bytes: 1 << 20}}
		for _, m := range []mode{render, evaluate} {
			got, err := eval(t, m, text, env)
			again, errAgain := eval(t, m, text, env)
			if (err == nil) != (errAgain == nil) {
				t.Fatalf("%q: %v and %v", text, err, errAgain)
			}
			if err != nil {
				var syntax *expression.SyntaxError
				var known *expression.Error
				if !errors.As(err, &syntax) && !errors.As(err, &known) {
					t.Fatalf("%q: %v", text, err)
				}
				continue
			}
			one, err := json.Marshal(got)
			two, _ := json.Marshal(again)
			if err == nil && string(one) != string(two) {
				t.Fatalf("%q: %s and %s", text, one, two)
			}
			if len(one) > 12<<20 {
				t.Fatalf("%q has %d bytes", text, len(one))
			}
		}
		if strings.Contains(text, "<+") || strings.Contains(text, "secrets.") || strings.Contains(text, "getAsBase64") || strings.ContainsRune(text, 0) {
			return
		}
		// text is the author's, around data.
		got, err := eval(t, render, text+"<+v>"+text+"<+x>", env)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		raw, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		raw, err = secrets.NewResolver(&secrets.Set{}, secrets.ResolverConfig{}).Resolve(t.Context(), raw)
		if err != nil {
			t.Fatalf("%q with %q: %q: %v", text, data, got, err)
		}
		var at string
		if err := json.Unmarshal(raw, &at); err != nil || at != text+data+text+data {
			t.Fatalf("%q with %q, rendered %q: %q %v", text, data, got, at, err)
		}
	})
}

// A select of JSON and XML ends for every path and every document, and fails with an error of its
// own at worst.
func FuzzSelect(f *testing.F) {
	for _, path := range []string{"a.b[0]", "$..a", "$['a b'][*]", "a[?(@.b == 'c' && @.d > 1)]", "[1:2]", "[-1]", "['a','b']", "[?(@ =~ /x/)]", "[?(length(@.a) > 1)]", "a[(@.length-1)]", "/a/b[1]", "//a[@b='c']/text()", "/a/..[last()]", "@a", "//*[a][2]", "."} {
		f.Add(path, `{"a": [{"b": "c", "d": 2}, null], "a b": [1]}`)
		f.Add(path, `<a b="c"><b>x</b><b/></a>`)
	}
	f.Fuzz(func(t *testing.T, path, data string) {
		for _, name := range []string{"json.select", "json.list", "json.object", "xml.select"} {
			_, err := eval(t, evaluate, name+"(p, d)", &expression.Environment{Scope: names{"p": path, "d": data}})
			var known *expression.Error
			if err != nil && !errors.As(err, &known) {
				t.Fatalf("%s(%q, %q): %v", name, path, data, err)
			}
		}
	})
}

// grammar makes an expression out of random bytes.
type grammar struct {
	bytes []byte
	// delimited reports that the expression stands in delimiters, outside of brackets.
	delimited bool
}

func (g *grammar) next(n int) int {
	if len(g.bytes) == 0 {
		return 0
	}
	b := g.bytes[0]
	g.bytes = g.bytes[1:]
	return int(b) % n
}

// inside makes an expression in brackets, or in delimiters.
func (g *grammar) inside(delimited bool, depth int) string {
	before := g.delimited
	g.delimited = delimited
	s := g.expression(depth)
	g.delimited = before
	return s
}

func (g *grammar) expression(depth int) string {
	if depth == 0 || len(g.bytes) == 0 {
		return g.leaf()
	}
	depth--
	operators := []string{"+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "=^", "!^", "=$", "!$", "??", "?:", "and", "or", "eq", "ne", "lt", "le", "gt", "ge", "div", "mod"}
	switch n := g.next(16); {
	case n < 6:
		operator := operators[g.next(len(operators))]
		if g.delimited {
			operator = map[string]string{">": "gt", ">=": "ge", "<": "lt", "<=": "le"}[operator] + operator
			operator = strings.TrimRight(operator, "<>=")
			if operator == "" || operator == "!" {
				operator = "=="
			}
		}
		return g.expression(depth) + " " + operator + " " + g.expression(depth)
	case n == 6:
		return "(" + g.inside(false, depth) + ")"
	case n == 7:
		return "<+" + g.inside(true, depth) + ">"
	case n == 8:
		return []string{"!", "not ", "- "}[g.next(3)] + g.expression(depth)
	case n == 9:
		return "(" + g.inside(false, depth) + " ? " + g.inside(false, depth) + " : " + g.inside(false, depth) + ")"
	case n == 10:
		return []string{"empty(", "size("}[g.next(2)] + g.inside(false, depth) + ")"
	case n == 11:
		if m := []string{"length", "concat", "contains", "substring"}[g.next(4)]; m != "length" {
			return "(" + g.inside(false, depth) + ")." + m + "(" + g.inside(false, depth) + ")"
		}
		return "(" + g.inside(false, depth) + ").length()"
	case n == 12:
		items := strings.Join([]string{g.leaf(), g.leaf()}, ", ")
		return "[" + strings.NewReplacer("[]", "0", "null", "1", "l[0]", "2", "false", "false", "l", "3").Replace(items) + "]" // no list in a list
	case n == 13:
		return "(" + g.inside(false, depth) + ")[" + g.inside(false, depth) + "]"
	}
	return g.leaf()
}

func (g *grammar) leaf() string {
	leaves := []string{"1", "0", "2", "10", "1.5", "0.0", "9223372036854775807", `"a"`, `"10"`, `"9"`, `""`, `"false"`, `"1.5"`, `" 5 "`, `"abc"`, "true", "false", "null", "a", "b", "s", "e", "t", "x", "l", "m.k", "u", "m.u", `l[0]`, `"É"`, "[]"}
	return leaves[g.next(len(leaves))]
}

// The evaluator and the second one, which works in another way, agree.
func FuzzEvaluateAgainstASecondEvaluator(f *testing.F) {
	for i := range 64 {
		f.Add([]byte{byte(i), byte(i * 7), byte(i * 13), byte(i * 29), byte(i * 31), byte(i * 3), byte(i * 17), byte(i), byte(i * 5), byte(i * 11)})
	}
	f.Fuzz(func(t *testing.T, random []byte) { compareWithSecond(t, random) })
}

func TestTheEvaluatorsAgreeOnRandomExpressions(t *testing.T) {
	t.Parallel()
	rnd := rand.NewChaCha8([32]byte{1})
	random := make([]byte, 40)
	for range 5_000 {
		_, err := rnd.Read(random)
		require.NoError(t, err)
		compareWithSecond(t, random)
	}
}

// compareWithSecond evaluates an expression that is made of random bytes by both evaluators.
func compareWithSecond(t *testing.T, random []byte) {
	scope := names{"a": 5, "b": "12", "s": "abc", "e": "", "t": true, "x": nil, "l": []any{1, "2"}, "m": map[string]any{"k": "v"}}
	encoded := map[string]string{"a": "i5", "b": "s12", "s": "sabc", "e": "s", "t": "btrue", "x": "n", "l": "li1\x00s2\x00", "m.k": "sv"}
	g := grammar{bytes: random}
	text := g.expression(6)
	if len(text) > 2000 {
		return
	}
	got, err := eval(t, evaluate, text, &expression.Environment{Scope: scope})
	var syntax *expression.SyntaxError
	if errors.As(err, &syntax) && strings.Contains(syntax.Text, "not chained") {
		return // the second evaluator does not read operands that it does not need
	}
	want, p := second(split(text), encoded)
	if (err != nil) != (p != fine) {
		t.Fatalf("%s\ngives %v, %v\nthe second evaluator gives %q, %d", text, got, err, want, p)
	}
	if err == nil && encode(got) != want {
		t.Fatalf("%s\ngives %q\nthe second evaluator gives %q", text, encode(got), want)
	}
}

// encode returns a value in the form of the second evaluator.
func encode(v any) string {
	switch v := v.(type) {
	case nil:
		return "n"
	case bool:
		return "b" + strconv.FormatBool(v)
	case int64:
		return "i" + strconv.FormatInt(v, 10)
	case float64:
		return secondFloat(v)
	case string:
		return "s" + v
	case []any:
		s := "l"
		for _, item := range v {
			s += encode(item) + "\x00"
		}
		return s
	}
	return "?"
}
