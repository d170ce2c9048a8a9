package expression_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
)

// failure is a part of the text of an expected error.
type failure string

type testCase struct {
	mode mode
	text string
	want any // a value or a failure
}

func runCases(t *testing.T, cases []testCase) {
	t.Helper()
	t.Parallel()
	for _, c := range cases {
		secrets := expression.Late
		if c.mode == decide {
			secrets = expression.Refuse
		}
		got, err := eval(t, c.mode, c.text, &expression.Environment{Scope: run(), Time: runTime, Secrets: secrets})
		if want, ok := c.want.(failure); ok {
			if assert.Error(t, err, "%s %s gives %v", c.mode, c.text, got) {
				assert.Contains(t, err.Error(), string(want), "%s %s", c.mode, c.text)
			}
			continue
		}
		if assert.NoError(t, err, "%s %s", c.mode, c.text) {
			assert.Equal(t, c.want, got, "%s %s", c.mode, c.text)
		}
	}
}

// conditions makes cases of the mode evaluate from pairs of a text and its value.
func conditions(pairs ...any) []testCase {
	var cases []testCase
	for i := 0; i < len(pairs); i += 2 {
		cases = append(cases, testCase{evaluate, pairs[i].(string), pairs[i+1]})
	}
	return cases
}

func TestTheTwoModesGiveTheirDocumentedValues(t *testing.T) {
	runCases(t, []testCase{
		{render, `<+a> + <+b>`, "5 + 12"},
		{evaluate, `<+a> + <+b>`, int64(17)},
		{render, `<+<+a> + <+b>>`, int64(17)},
		{render, `sum <+<+a> + <+b>>`, "sum 17"},
		{render, `<+f> + <+g> = <+<+f> + " + " + <+g>>`, "abc + def = abc + def"},
		{render, `<+ <+a>==5?<+f>:<+g> >`, "abc"},
		{evaluate, `<+ <+a>==5?<+f>:<+g> >`, "abc"},
		{render, `<+variable.<+nothing ?? "dns">>`, "ns.example"},
		{render, `<+object.<+<+f> == "abc" ? "k" : "z">>`, "v"},
		{evaluate, `<+<+v5>.replace('-','')>`, "123"},
		{render, `<+<+v5>.replace('-','')>`, "123"},
		{render, `<+company.concat('india')>`, "harnessindia"},
		{evaluate, `<+company.concat('india')>`, "harnessindia"},
		{evaluate, `archit-<+company>`, "archit-harness"},
		{evaluate, `v1.2-<+company>`, "v1.2-harness"},
		{evaluate, `refs/<+company>:<+f>`, "refs/harness:abc"},
		{evaluate, `a-<+b>`, int64(-7)}, // a is a known name
		{evaluate, `<+a>-<+b>`, int64(-7)},
		{render, `<+a>-<+b>`, "5-12"},
		{render, `<+f><+g>`, "abcdef"},
		{evaluate, `<+f><+g>`, failure(`an operator is missing before "<+"`)},
		{render, `<+"<+f>d">`, "abcd"},
		{evaluate, `"<+f>" == "abc"`, true},
		{evaluate, `'<+f> <+g>'`, "abc def"},
		{evaluate, `<+pipeline.variables.list>.split(',')`, []any{"a", "b", "c"}},
		{render, `<+pipeline.variables.list.split(',')[1]>`, "b"},
		{render, `<+a>`, int64(5)},
		{render, ` <+a>`, " 5"},
		{render, `<+yes>`, true},
		{render, `<+items>`, []any{"x", "y", int64(3)}},
		{render, `<+set>`, []any{"p", "q"}},
		{render, `x<+items>`, "x[x, y, 3]"},
		{render, `x<+object>`, "x{deep={list=[1, 2]}, k=v, n=null}"},
		{render, `<+object.deep>`, map[string]any{"list": []any{int64(1), int64(2)}}},
		{render, `<+trigger.payload.size>`, 12.0},
		{render, `size <+trigger.payload.size>`, "size 12.0"},
		{render, `plain`, "plain"},
		{render, ``, ""},
		{render, `a < b > c`, "a < b > c"},
		{render, `<+input>`, "<+input>"},
		{render, `<+input>.default(x) <+a>`, "<+input>.default(x) 5"},
		{render, `<+ secrets.getValue("x") >`, "${{secrets.x}}"},
		{render, "<+\n a\n>", int64(5)},
		{render, `cat <+ no end`, "cat <+ no end"},
		{render, `cat <+foo and <+a>`, "cat <+foo and 5"},
		{render, `<+foo and <+a> x>`, failure(`">" is missing before "x"`)},
		{render, `<+a> <+`, "5 <+"},
		{render, `<+x.replace(">", "")>`, failure("x is unknown")},
		{render, `<+v5.replace("-", ">")>`, "1>2>3"},
		{render, `<+(a > 3)>`, true},
		{render, `<+[a > 3, a >= 5]>`, []any{true, true}},
		{render, `<+a > 3>`, "5 3>"},
		{evaluate, `<+a> > 3`, true},
		{render, `<+a gt 3>`, true},
		{render, `<+steps.build_<+strategy.iteration>.output.outputVariables.VERSION>`, "one"},
		{render, `<+<+"f">>`, "f"},
		{render, `<+trigger.payload["x-auth"]>`, "yes"},
		{render, `<+f ?? >`, failure("a value is missing")},
		{render, `<+>`, failure("the expression is empty")},
		{render, `<+ >`, failure("the expression is empty")},
		{render, `<+f + <+input>>`, failure("runtime input")},
	})
}

func TestOperatorsFollowTheStrictArithmetic(t *testing.T) {
	runCases(t, conditions(
		// +
		`1 + 2`, int64(3), `1.5 + 1`, 2.5, `"5" + 6`, "56", `6 + "5"`, "65", `"a" + true`, "atrue", `1 + 2 + "a"`, "3a", `"a" + 1 + 2`, "a12",
		`"" + 1.0`, "1.0", `"x" + [1, 2]`, "x[1, 2]", `<+pipeline.variables.replicas> + 1`, "31", `true + 1`, int64(2),
		`null + null`, failure("null"), `null + 1`, failure("null"), `1 + null`, failure("null"), `"a" + null`, failure("null"), `<+nothing> + "a"`, failure("null"),
		`[1] + 1`, failure("a list is not a number"), `9223372036854775807 + 1`, failure("64 bits"),
		// - * / %
		`5 - 2`, int64(3), `"5" - 2`, int64(3), `"5" * "6"`, int64(30), `"1.5" * 2`, 3.0, `7 / 2`, int64(3), `7 / 2.0`, 3.5, `7 div 2`, int64(3), `-7 / 2`, int64(-3),
		`7 % 4`, int64(3), `7 mod 4`, int64(3), `7.5 % 2`, 1.5, `-7 % 3`, int64(-1), `1 / 0`, failure("division by 0"), `1 % 0`, failure("division by 0"), `1.0 / 0`, failure("division by 0"),
		`null - 1`, failure("null"), `1 * null`, failure("null"), `null / null`, failure("null"), `"abc" - 1`, failure(`"abc" is not a number`),
		`-9223372036854775807 - 2`, failure("64 bits"), `4611686018427387904 * 2`, failure("64 bits"), `"" - 1`, int64(-1), `"1e999" > 1`, true, `"1e999" - 1 > 1`, true, `"1e999" - "1e999" == 0`, false, `"92233720368547758071.5" > 1`, true, `"92233720368547758071" - 1`, failure("64 bits"), `1 - 2 - 3`, int64(-4), `2 + 3 * 4`, int64(14), `(2 + 3) * 4`, int64(20),
		`100 / 10 / 5`, int64(2), `<+pipeline.variables.replicas> - 1`, int64(2), `<+pipeline.variables.number>`, int64(6), `-(3)`, int64(-3), `-<+a>`, int64(-5), `+"4"`, int64(4), `- -4`, int64(4),
		`-null`, failure("null"), `2 * -3`, int64(-6), `1e3`, 1000.0, `0x1F`, int64(31), `5L`, int64(5), `1.5f`, 1.5,
		// ==
		`null == null`, true, `null != null`, false, `null == "x"`, false, `null != "x"`, true, `"x" == null`, false, `<+nothing> == null`, true, `<+nothing> == ""`, false,
		`"a" == "a"`, true, `"a" == "A"`, false, `"a" != "b"`, true, `1 == 1.0`, true, `"1" == 1`, true, `"1.0" == 1`, true, `1 == " 1 "`, true, `<+padded> == 5`, true,
		`"abc" == 5`, failure("is not a number"), `5 == "abc"`, failure("is not a number"), `"abc" != 5`, failure("is not a number"), `"1" == "1.0"`, false, `"" == 0`, true,
		`true == true`, true, `true == "true"`, true, `true == "yes"`, true, `false == "false"`, true, `"False" == true`, true, `false == ""`, true, `1 == true`, true, `0 == false`, true, `2 == true`, true,
		`null == false`, false, `<+yes> == "true"`, true, `<+text> == false`, true, `[1,2] == [1,2]`, true, `[1,2] == [2,1]`, false, `[1] == "[1]"`, true, `{"a":1} == {"a":1}`, true,
		`{"a":1} == {"a":2}`, false, `[] == {:}`, false, `1 eq 1`, true, `1 ne 1`, false, `"a" eq 'a'`, true,
		`<+trigger.event> == "PR"`, true, `<+trigger.event> != "PR"`, false, `<+trigger.branch> != "PR"`, true, `<+codebase.tag> == "v1"`, false, `<+env.name> == "prod"`, false, `<+infra.a.b.c> == null`, true,
		`<+codebase.prNumber> == "12"`, true, `<+codebase.prNumber> == 12`, true, `1 == 1 == 1`, failure("not chained"),
		// < <= > >=
		`1 < 2`, true, `2 < 1`, false, `2 <= 2`, true, `3 > 2`, true, `2 >= 3`, false, `1 lt 2`, true, `1 le 1`, true, `2 gt 1`, true, `1 ge 2`, false,
		`"10" > "9"`, false, `<+pipeline.variables.ten> > <+pipeline.variables.nine>`, false, `<+pipeline.variables.ten> > 9`, true, `"a" < "b"`, true, `"b" <= "a"`, false,
		`null < 1`, false, `null > 1`, false, `1 < null`, false, `null <= 1`, false, `null >= 1`, false, `null <= null`, true, `null >= null`, true, `null < null`, false, `null > null`, false,
		`"abc" < 5`, failure("is not a number"), `1.5 > 1`, true, `true > false`, true, `[1] < [2]`, failure("no order"), `1 < 2 < 3`, failure("not chained"), `true > 0`, true,
		// && || !
		`true && true`, true, `true && false`, false, `false || true`, true, `true and false`, false, `true or false`, true, `not true`, false, `!false`, true, `!!"x"`, true,
		`"a" || "branch"`, true, `<+codebase.build.type> == "tag" || "branch"`, true, `"" || ""`, false, `"false" || ""`, false, `"False" && true`, true, `0 || 0.0`, false, `2 && "x"`, true,
		`[] && true`, true, `null && true`, failure("null"), `true && null`, failure("null"), `null || true`, failure("null"), `!null`, failure("null"), `<+nothing> || true`, failure("null"),
		`false && null`, false, `true || null`, true, `false && <+unknown>`, false, `true || <+unknown>`, true, `true && <+unknown>`, failure("unknown is unknown"), `!""`, true, `!0`, true, `!"0"`, false,
		`true || false && false`, true, `(true || false) && false`, false, `1 == 1 && 2 == 2`, true,
		// ?: ??
		`true ? 1 : 2`, int64(1), `false ? 1 : 2`, int64(2), `null ? 1 : 2`, int64(2), `"" ? 1 : 2`, int64(2), `true?"a":"b"`, "a", `false ? 1 : true ? 2 : 3`, int64(2), `<+unknown> ? 1 : 2`, failure("unknown is unknown"),
		`"a" ?: "b"`, "a", `"" ?: "b"`, "b", `null ?: "b"`, "b", `0 ?: 5`, int64(5), `<+unknown> ?: "b"`, "b", `false ?: "b"`, "b",
		`null ?? "b"`, "b", `"" ?? "b"`, "", `0 ?? 1`, int64(0), `<+unknown> ?? "b"`, "b", `<+pipeline.variables.nope> ?? <+nothing> ?? "c"`, "c", `<+unknown> ?? <+unknown>`, failure("unknown is unknown"),
		`<+trigger.branch> ?? "none"`, "none", `<+1 / 0> ?? 1`, failure("division"),
		// =~ =^ =$
		`"abc" =~ "a.c"`, true, `"abcd" =~ "a.c"`, false, `"abc" !~ "a.c"`, false, `"abc" !~ "x"`, true, `"b" =~ ["a", "b"]`, true, `"z" =~ ["a", "b"]`, false, `"z" !~ {"a", "b"}`, true, `"a" =~ {"a": 1}`, true, `1 =~ ["1"]`, false,
		`["a"] =~ ["a", "b"]`, true, `["c"] =~ ["a", "b"]`, false, `null =~ "a"`, false, `null =~ null`, true, `"a" =~ null`, false, `12 =~ "1."`, true, `"main" =~ "main|develop"`, true, `"v1.2" =~ "v[0-9.]+"`, true, `"refs/tags/v1" =~ "refs/tags/v.*"`, true,
		`"a" =~ "(?=a)"`, failure("RE2"), `"a" =~ "("`, failure("RE2"), `"k" =~ <+object>`, true, `"zz" =~ <+object>`, false,
		`"abc" =^ "ab"`, true, `"abc" =^ "b"`, false, `"abc" !^ "b"`, true, `"abc" =$ "bc"`, true, `"abc" =$ "b"`, false, `"abc" !$ "b"`, true, `null =^ "a"`, false, `null !^ "a"`, true, `"a" =^ null`, false, `123 =^ "1"`, true, `[1] =^ 1`, failure("must be a text"),
		`<+trigger.payload.ref> =^ "refs/heads/"`, true, `<+codebase.branch> =$ "in"`, true,
		// empty, size
		`empty("")`, true, `empty(null)`, true, `empty("a")`, false, `empty([])`, true, `empty([1])`, false, `empty({:})`, true, `empty(0)`, true, `empty(1)`, false, `empty(false)`, false, `empty(<+unknown>)`, true, `empty <+nothing>`, true, `!empty(<+f>)`, true, `empty(<+pipeline.variables.empty>)`, true,
		`size("abc")`, int64(3), `size([1,2])`, int64(2), `size({"a":1})`, int64(1), `size(null)`, int64(0), `size(<+umlaut>)`, int64(7), `size(1)`, failure("no size"), `size(<+unknown>)`, failure("unknown is unknown"), `size(<+matrix>)`, int64(3),
	))
}

func TestLiteralsAndIndices(t *testing.T) {
	runCases(t, conditions(
		`[]`, []any{}, `[1, "a", null, true]`, []any{int64(1), "a", nil, true}, `[[1], [2]]`, []any{[]any{int64(1)}, []any{int64(2)}}, `{"a": 1, "b": [2]}`, map[string]any{"a": int64(1), "b": []any{int64(2)}},
		`{:}`, map[string]any{}, `{}`, []any{}, `{1, 2, 1}`, []any{int64(1), int64(2)}, `{1: "x"}`, map[string]any{"1": "x"}, `'single'`, "single", `"dou'ble"`, "dou'ble", `'a\'b'`, "a'b", `"a\"b"`, `a"b`,
		`"a\nb"`, "a\nb", `"a\tb"`, "a\tb", `"\\d"`, `\d`, `"\d"`, `\d`, `"\u00e9"`, "é", `"\u12"`, `\u12`, `1`, int64(1), `1.5`, 1.5, `1L`, int64(1), `true`, true, `TRUE`, true, `False`, false, `null`, nil,
		`007`, failure("begins with 0"), `1x`, failure("is not a number"), `1.2.3`, failure("is not a number"), `99999999999999999999`, failure("64 bits"), `"open`, failure("has no end"), `[1, 2`, failure("missing"), `{"a": 1, 2}`, failure(`":"`), `[null + 1]`, failure("null"),
		`[1,2][0]`, int64(1), `[1,2][5]`, failure("no item 5"), `[1,2]["x"]`, failure("not a number"), `{"a": 1}["a"]`, int64(1), `{"a": 1}.a`, int64(1), `{"a": 1}.b`, failure("b is unknown"), `[5,6].1`, int64(6), `<+items>[2]`, int64(3), `<+items[0]>`, "x", `<+items.0>`, "x",
		`<+trigger.payload.commits[1].id>`, "c2", `<+trigger.payload.commits.0.id>`, "c1", `<+trigger.header["X-Event"]>`, "pull_request", `<+matrix["a-b"]>`, "dash", `<+matrix.get("a-b")>`, "dash",
		`<+object?.nope>`, nil, `<+unknown?.a>`, failure("unknown is unknown"), `<+nothing?.a>`, nil, `<+nothing?.concat("x")>`, nil, `<+object.n>`, nil, `<+object.n.deeper>`, nil, `<+object?.k>`, "v", `<+object.deep?.list[0]>`, int64(1),
		`{"a": {"b": 2}}.a.b`, int64(2), `("a" + "b").length()`, int64(2), `"abc"[0]`, failure("unknown"),
	))
}

func TestOnlyTheListedMethodsExist(t *testing.T) {
	runCases(t, conditions(
		`"a".concat("b")`, "ab", `"abc".contains("b")`, true, `"abc".contains("z")`, false, `"abc".substring(1)`, "bc", `"abc".substring(1, 2)`, "b", `"abc".substring(3)`, "", `"abc".substring(4)`, failure("outside"), `"abc".substring(2, 1)`, failure("outside"), `"abc".substring(-1)`, failure("outside"),
		`"a,b,,c,,".split(",")`, []any{"a", "b", "", "c"}, `"abc".split("x")`, []any{"abc"}, `"".split(",")`, []any{""}, `"1.2.3".split("\\.")`, []any{"1", "2", "3"}, `"a1b2c".split("[0-9]")`, []any{"a", "b", "c"}, `"a,b,c".split(",", 2)`, []any{"a", "b,c"}, `"a:b".split(":")[1]`, "b", `"a".split("(")`, failure("RE2"), `",".split(",")`, []any{},
		`"Ab".toLowerCase()`, "ab", `"Ab".toUpperCase()`, "AB", `"a-b-c".replace("-", "")`, "abc", `"a.b".replace(".", "-")`, "a-b", `"a1b22".replaceAll("[0-9]+", "#")`, "a#b#", `"ab".replaceAll("(a)(b)", "$2$1")`, "ba", `"a".replaceAll("a", "\\$")`, "$", `"a".replaceAll("a", "$")`, failure("without a group"), `"a".replaceAll("a", "$1")`, failure("uses group 1"),
		`"ab".replaceAll("(a)", "$12")`, "a2b", `" a ".trim()`, "a", `<+padded>.trim()`, "5", `"abcabc".indexOf("c")`, int64(2), `"abc".indexOf("z")`, int64(-1), `"abcabc".indexOf("c", 3)`, int64(5), `"abcabc".lastIndexOf("b")`, int64(4), `<+umlaut>.indexOf("e")`, int64(4), `<+umlaut>.length()`, int64(7), `<+umlaut>.substring(6)`, "😀", `<+umlaut>.charAt(2)`, "ü",
		`"abc".startsWith("a")`, true, `"abc".endsWith("c")`, true, `"abc".length()`, int64(3), `"abc".matches("a.*")`, true, `"abc".matches("b")`, false, `"abc".equals("abc")`, true, `"1".equals(1)`, false, `"abc".equalsIgnoreCase("ABC")`, true, `"abc".equalsIgnoreCase(null)`, false, `"".isEmpty()`, true, `"a".isEmpty()`, false, `"abc".charAt(1)`, "b", `"abc".charAt(3)`, failure("outside"),
		`["a","b"].get(1)`, "b", `["a"].get(3)`, failure("no item 3"), `["a","b"].size()`, int64(2), `["a"].contains("a")`, true, `[1].contains("1")`, false, `["a","b"].indexOf("b")`, int64(1), `["a"].indexOf("b")`, int64(-1), `["a",1].join("-")`, "a-1", `[].join(",")`, "",
		`{"a":1}.get("a")`, int64(1), `{"a":1}.get("b")`, failure("b is unknown"), `{"b":1,"a":2}.keySet()`, []any{"a", "b"}, `{"a":1}.containsKey("a")`, true, `{"a":1}.containsKey("b")`, false, `{"a":1}.size()`, int64(1), `<+matrix>.keySet().join(",")`, "a-b,os,service", `<+object.containsKey("k")>`, true,
		`<+codebase.prNumber>.length()`, int64(2), `12.concat("3")`, "123", `true.toUpperCase()`, "TRUE", `"abc".replace("", "-")`, "-a-b-c-",
		`"a".getClass()`, failure("the method getClass is not allowed"), `fileStore.getAsString("/a")`, failure("there is no file store"), `"a".getBytes()`, failure("is not allowed"), `"a".class`, failure("class is unknown"), `"a".toString()`, failure("is not allowed"), `"a".hashCode()`, failure("is not allowed"), `[1].add(2)`, failure("is not allowed"), `[1].isEmpty()`, failure("a list has no method isEmpty"), `{"a":1}.put("b", 2)`, failure("is not allowed"), `"a".size()`, failure("a text has no method size"), `"a".lengths()`, failure("did you mean length?"),
		`"a".concat()`, failure("takes 1 argument, not 0"), `"a".substring()`, failure("takes 1 or 2 arguments, not 0"), `"a".replace("a")`, failure("takes 2 arguments, not 1"), `null.length()`, failure("null has no method"), `<+nothing>.length()`, failure("null has no method"), `"a".concat(null)`, failure("null"), `"a".contains(null)`, failure("null"), `"a"()`, failure("only functions"), `<+f>.substring("x")`, failure("is not a number"),
	))
}

func TestFunctorsAndDates(t *testing.T) {
	const books = `'{"books":[{"title":"A","price":8,"in":true},{"title":"B","price":12.5}],"a b":{"c.d":null},"mvn://x-y":"dots"}'`
	const shelf = `'<?xml version="1.0"?><shop><book lang="en"><title>A &amp; B</title></book><book lang="de"><title>C</title><price>3</price></book><!-- x --></shop>'`
	runCases(t, conditions(
		`regex.extract("[0-9]+", "ab12cd34")`, "12", `regex.extract("(a)b", "ab")`, "ab", `regex.extract("x*", "abxx")`, "xx", `regex.extract("z", "abc")`, "", `regex.match("b", "abc")`, true, `regex.match("^b", "abc")`, false, `regex.replace("b+", "x", "abbc")`, "axc", `regex.replace("(b)", "<$1>", "abc")`, "a<b>c",
		`regex.extract("(?<=a)b", "ab")`, failure("no look-arounds and no back references"), `regex.match("(a)\\1", "aa")`, failure("RE2"), `regex.match("a")`, failure("takes 2 arguments"), `regex.matches("a", "b")`, failure("did you mean regex.match?"), `regex.match(null, "a")`, failure("null"), `regex.match("a", <+unknown>)`, failure("unknown is unknown"),
		`json.select("books[0].title", `+books+`)`, "A", `json.select("$.books[1].title", `+books+`)`, "B", `json.select("books[0].price", `+books+`)`, "8", `json.select("books[1].price", `+books+`)`, "12.5", `json.select("books[0].in", `+books+`)`, "true", `json.select("mvn://x-y", `+books+`)`, "dots", `json.select("['a b']['c.d']", `+books+`)`, nil,
		`json.select("books[0]", `+books+`)`, `{"in":true,"price":8,"title":"A"}`, `json.select("books[*].title", `+books+`)`, `["A","B"]`, `json.select("$..title", `+books+`)`, `["A","B"]`, `json.select("books[?(@.title == 'B')].price", `+books+`)`, `[12.5]`, `json.select("books[-1].title", `+books+`)`, "B", `json.select("nope.x", `+books+`)`, failure("no value at nope.x"), `json.select("nope", `+books+`) ?? "none"`, "none",
		`json.list("books", `+books+`).get(1).title`, "B", `json.list("books", `+books+`).size()`, int64(2), `json.list("books[?(@.price > 10)].title", `+books+`)`, []any{"B"}, `json.list("mvn://x-y", `+books+`)`, failure("not a list"), `json.object(`+books+`).books[0].price`, int64(8), `json.object("books[0]", `+books+`).title`, "A", `json.object('[1]')`, []any{int64(1)}, `json.object('{')`, failure("not JSON"), `json.object('{} x')`, failure("not JSON"), `json.object(<+pipeline.variables.json>).t`, "shop",
		`json.format({"b":[1],"a":"<x>"})`, "{\n  \"a\": \"<x>\",\n  \"b\": [\n    1\n  ]\n}", `json.format('{"a":1}')`, "{\n  \"a\": 1\n}", `json.format("text")`, `"text"`, `json.select("commits[1].id", <+trigger.payload>)`, "c2", `json.select("$..a..b", '{}')`, failure("uses .. more than once"), `json.select("a[?(@.b == $.c)]", '{}')`, failure("filter"), `json.select("a.length()", '{}')`, failure("function"), `json.select("a[", '{}')`, failure("without end"), `json.select("a..", '{}')`, failure("empty name"), `json.format(<+matrix>)`, failure("map of the run"),
		`xml.select("/shop/book[1]/title", `+shelf+`)`, "A & B", `xml.select("//price", `+shelf+`)`, "3", `xml.select("/shop/book[2]/@lang", `+shelf+`)`, "de", `xml.select("/shop/book[@lang='de']/title", `+shelf+`)`, "C", `xml.select("/shop/book[title='C']/price", `+shelf+`)`, "3", `xml.select("/shop/book[last()]/title/text()", `+shelf+`)`, "C", `xml.select("/shop/*[price]/@lang", `+shelf+`)`, "de", `xml.select("//title/../@lang", `+shelf+`)`, "en", `xml.select("/shop/book[3]", `+shelf+`)`, failure("no node at"), `xml.select("count(//book)", `+shelf+`)`, failure("not supported"), `xml.select("/a", "no xml")`, failure("not XML"), `xml.select("/a", "<a>&x;</a>")`, failure("not XML"), `xml.select("//book[@lang!='de']", `+shelf+`)`, failure("not supported"),
		`currentDate() + ""`, "2026-11-22", `currentDate()`, "2026-11-22", `currentTime()`, "2026-11-22T20:15:04", `currentDate().plusDays(10)`, "2026-12-02", `currentDate().minusMonths(9)`, "2026-02-22", `currentDate().plusMonths(3).plusDays(9).minusMonths(1)`, "2027-02-03", `currentDate().plusDays(9).plusMonths(3)`, "2027-03-01", `currentDate().plusDays(8).plusMonths(3)`, "2027-02-28", `currentDate().plusYears(-1)`, "2025-11-22", `currentDate().plusWeeks(1)`, "2026-11-29", `currentTime().plusHours(4).minusMinutes(15).plusSeconds(1)`, "2026-11-23T00:00:05", `currentDate().plusHours(1)`, failure("a date has no Hours"), `currentDate().plusYears(9000)`, failure("out of range"), `currentDate().plusDays("x")`, failure("whole number"), `datetime.currentDate()`, "2026-11-22", `currentDate() == "2026-11-22"`, true, `currentDate() < currentDate().plusDays(1)`, true, `currentDate().now()`, failure("is not allowed"), `currentDate().length()`, failure("a date has no method length"), `currentDates()`, failure("did you mean currentDate?"), `currentTime().plusHours(1000000000)`, failure("out of range"),
		`expression.isResolved(<+f>)`, true, `expression.isResolved(<+unknown.x>)`, false, `expression.isResolved(<+pipeline.variables.nope>)`, false, `expression.isResolved(<+nothing>)`, false, `expression.isResolved(<+1/0>)`, failure("division"), `expression.isUnresolved(<+f>)`, failure("not known"), `fileStore.getAsString("/a")`, failure("is not allowed"), `fileStore.a`, failure("keep the file in the repository"), `executionTags.addTag("a", "b")`, failure("give the run labels"), `inputSet.getValue("a")`, failure("use the name of the field"), `inputSet.a == null`, failure("is not allowed"), `"<+executionInput.a>"`, failure("use the name of the field"), `approval()`, failure("not known"),
	))
}

func TestRootsResolveFromTheNodeOutwards(t *testing.T) {
	var cases []testCase
	for i, pairs := 0, []any{
		"pipeline.identifier", "release", "pipeline.sequenceId", int64(42), "pipeline.triggeredBy.email", "ada@team.example", "pipeline.tags.owner", "team", "pipeline.tags.flag", "", "pipeline.variables.app", "shop", "pipeline.variables.url", "https://shop.eu.example", "pipeline.variables.replicas", "3",
		"pipeline.stages.build.spec.execution.steps.build.output.outputVariables.VERSION", "1.2.3", "pipeline.stages.test.status", "SKIPPED", "pipeline.startTs", int64(1795378504000), "pipeline.variables.percent", int64(7), "pipeline.variables.ratio", 0.5, "pipeline.triggerType", "WEBHOOK",
		"stage.name", "Build it", "stage.variables.region", "eu", "stage.variables.host", "eu.example", "stage.matrix.os", "linux", "stage.tags.team", "core", "stage.spec.execution.steps.checks.steps.unit.output.outputVariables.COUNT", "17", "stage.variables.key", "${{secrets.stage_key}}",
		"build.variables.region", "eu", "variables.region", "eu", "step.exitCode", int64(137), "step.retryCount", int64(1), "steps.build.output.outputVariables.IMAGE", "app:1.2.3", "execution.steps.build.status", "SUCCEEDED", "execution.steps.checks.steps.unit.exitCode", int64(0), "matrix.os", "linux", "matrix.service.name", "api", "matrix.service.port", int64(8080), "repeat.item", "two",
		"strategy.iteration", int64(1), "strategy.identifierPostFix", "_1", `strategy.node.get("compile").currentStatus`, "RUNNING", "strategy.node.compile.currentStatus", "RUNNING", "codebase.branch", "main", "codebase.build.type", "PR", "codebase.build.spec.number", "12", "codebase.commitSha.substring(0, 7)", "0123456", "trigger.payload.ref", "refs/heads/main", `trigger.header["X-Event"]`, "pull_request", "trigger.payload.draft", false,
		"account.companyName", "Company", "org.identifier", "default", "project.identifier", "shop", "variable.dns", "ns.example", "variable.org.region", "eu", "variable.account.mail", "ci@team.example", "env.name", nil, "artifact.image.tag", nil, "OnPipelineSuccess", true, "OnStageFailure", false, "Always", true, `pipeline.variables["a-b"]`, "hyphen", `pipeline.variables.get("a-b")`, "hyphen",
	}; i < len(pairs); i += 2 {
		cases = append(cases, testCase{render, "<+" + pairs[i].(string) + ">", pairs[i+1]})
	}
	runCases(t, cases)
}

func TestUnknownNamesAreErrorsThatNameTheNearest(t *testing.T) {
	runCases(t, []testCase{
		{render, `<+pipeline.variables.ap>`, failure("pipeline.variables.ap is unknown; did you mean pipeline.variables.app?")},
		{render, `echo <+codebase.brnach>`, failure("expression <+codebase.brnach>: codebase.brnach is unknown; did you mean codebase.branch?")},
		{render, `<+pipline.name>`, failure("pipline is unknown; did you mean pipeline?")},
		{render, `<+Pipeline.name>`, failure("did you mean pipeline?")},
		{render, `<+zzzzzzzz.name>`, failure("zzzzzzzz is unknown")},
		{render, `<+steps.biuld.status>`, failure("did you mean steps.build?")},
		{render, `<+pipeline.variables.typo>`, failure("in the value of pipeline.variables.typo: pipeline.variables.ap is unknown")},
		{render, `<+pipeline.variables.broken>`, failure("in the value of pipeline.variables.broken: a name is missing")},
		{render, `<+pipeline.variables.a-b>`, failure(`a name with a hyphen is written ["a-b"]`)},
		{evaluate, `<+execution.steps.L2_Cache.status> == "IGNORE_FAILED"`, failure("execution.steps.L2_Cache is unknown")},
		{evaluate, `<+codebase.branch> == main`, failure(`main is unknown; a text stands in quotes: "main"`)},
		{evaluate, `"main" == <+unknown>`, failure("unknown is unknown")},
		{evaluate, `<+unknown> == null`, true},
		{evaluate, `<+unknown.a.b> != null`, false},
		{evaluate, `null == <+unknown>`, true},
		{evaluate, `<+pipeline.variables.nope> == null`, true},
		{evaluate, `<+unknown> + "x" == null`, true},
		{evaluate, `<+1/0> == null`, failure("division")},
		{render, `x<+nothing>`, failure("the value is null")},
		{render, `x<+nothing ?? "y">`, "xy"},
		{render, `<+nothing>`, nil},
		{evaluate, `"a<+nothing>"`, failure("null")},
		{render, `x<+matrix>`, failure("a map has no text")},
		{render, `<+matrix>`, failure("expression <+matrix>: the value is a map of the run: name one of its members")},
		{render, `<+pipeline.variables.itself>`, failure("pipeline.variables.itself refers to itself")},
		{render, `<+pipeline.variables.left>`, failure("pipeline.variables.left refers to itself: pipeline.variables.left -> pipeline.variables.right -> pipeline.variables.left")},
	})
}

func TestScriptsAndOtherSyntaxAreRefused(t *testing.T) {
	var cases []testCase
	for _, text := range []string{
		`var x = 1`, `x = 1`, `1; 2`, `for (x : y) {}`, `while (true) {}`, `function() {}`, `if (true) 1`, `return 1`, `new("java.lang.String")`, `a -> a`, `() -> 1`, `1 & 2`, `1 | 2`, `1 ^ 2`, `~1`, "`x`", `1 .. 2`, `#x`, `a.b = 1`, `x += 1`, `import a`, `@a`, `a b`,
		`(1`, `1)`, `[1`, `]`, `{`, `a.`, `a..b`, `.a`, `?`, `1 ?`, `1 ? 2`, `1 ? 2 :`, `==`, `1 ==`, `!`, `-`, `and`, `1 and`, `a(`, `secrets.foo`, `secrets`, "", "  \n", `"<+"`, `'`, `"\`, `lambda(x)`, `é`, "\x00", `1 == 1 == 1`, `a?b`, `size`, `empty`, `a ! b`, `(((`,
	} {
		_, err := expression.ParseCondition(text)
		var syntax *expression.SyntaxError
		if assert.ErrorAs(t, err, &syntax, text) {
			assert.True(t, syntax.Offset >= 0 && syntax.Offset <= len(text), text)
		}
		cases = append(cases, testCase{evaluate, text, failure("at byte")})
	}
	runCases(t, cases)
}

func TestTheResultOfAConditionDecides(t *testing.T) {
	runCases(t, []testCase{
		{decide, `true`, true}, {decide, `"true"`, true}, {decide, `"TRUE"`, true}, {decide, `"False"`, false}, {decide, `"false"`, false}, {decide, `FALSE`, false}, {decide, `"yes"`, true}, {decide, `"no"`, true}, {decide, `""`, false}, {decide, `"  "`, true}, {decide, `0`, false}, {decide, `2`, true}, {decide, `[]`, true},
		{decide, "<+codebase.branch> == \"main\"\n", true}, {decide, "  <+codebase.branch> ==\n  \"main\" &&\n  <+trigger.event> == \"PR\"\n", true}, {decide, `<+nothing>`, failure("the value of the condition is null")}, {decide, `null`, failure("null")}, {decide, `<+unknown>`, failure("unknown is unknown")},
		{decide, `<+trigger.event> != "PR"`, false}, {decide, `<+OnPipelineSuccess> && (<+codebase.branch> == "main")`, true}, {decide, `<+Always>`, true}, {decide, `<+matrix.os> == "linux"`, true}, {decide, `<+step.exitCode> == 137`, true}, {decide, `<+codebase.prTitle> =~ ".*secrets.*"`, true},
		{decide, `<+secrets.getValue("x")> == "y"`, failure(`the secret "x" is not allowed here`)}, {decide, `<+stage.variables.key> == "y"`, failure("not allowed here")}, {decide, `<+pipeline.variables.secret> == "y"`, failure("not allowed here")}, {decide, `archit-<+company>`, true}, {decide, `<+text>`, false}, {decide, `<+currentDate()>`, true},
	})
}

func TestValuesOfTheAuthorAreRenderedToTheDepthOfFifteen(t *testing.T) {
	t.Parallel()
	chain := func(n int) names {
		vars := names{"v0": author("end")}
		for i := 1; i < n; i++ {
			vars["v"+string(rune('a'+i))] = author("<+v" + map[bool]string{true: "0", false: string(rune('a' + i - 1))}[i == 1] + ">")
		}
		return vars
	}
	got, err := eval(t, render, "<+vo>", &expression.Environment{Scope: chain(15)})
	require.NoError(t, err)
	assert.Equal(t, "end", got)
	_, err = eval(t, render, "<+vq>", &expression.Environment{Scope: chain(17)})
	require.ErrorContains(t, err, "more than 15 deep")
}

func TestEvaluationIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10)
	bomb := names{"b0": author(strings.Repeat("y", 1000)), "long": long, "data": `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`}
	for i := 1; i < 10; i++ {
		prev := "<+b" + string(rune('0'+i-1)) + ">"
		bomb["b"+string(rune('0'+i))] = author(strings.Repeat(prev, 10))
	}
	many := make([]any, 50_000)
	bomb["many"] = many
	for text, want := range map[string]string{
		`<+b9>`:                           "more than 262144 bytes",
		`<+long + long>`:                  "more than 262144 bytes",
		`<+long>` + `<+long>`:             "more than 262144 bytes",
		`<+long.replace("x", "xyz")>`:     "more than 262144 bytes",
		`<+long.replaceAll("x", "xyzz")>`: "more than 262144 bytes",
		`<+many == many && many == many>`: "too many steps",
		`<+many.join("")>`:                "too many steps",
		`<+json.object(data)>`:            "nested more than 100 deep",
		`<+` + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200) + `>`: "more than 100 deep",
		strings.Repeat("<+", 200) + "a" + strings.Repeat(">", 200):             "more than 100 deep",
		`<+1` + strings.Repeat("+1", 10_000) + `>`:                             "more than 10000 words",
		`<+"` + strings.Repeat("<+1>", 10_000) + `">`:                          "more than 10000 words",
		`<+` + strings.Repeat("!", 200) + `true>`:                              "more than 100 deep",
		`<+"a" =~ "` + strings.Repeat("a", 1001) + `">`:                        "more than 1000 characters",
		`<+"a" =~ "((a{100}){100}){100}">`:                                     "RE2",
		`<+[` + strings.Repeat(`long.toUpperCase(), `, 60) + `1]>`:             "too much memory",
	} {
		_, err := eval(t, render, text, &expression.Environment{Scope: bomb})
		assert.ErrorContains(t, err, want, "%.60s", text)
	}
	got, err := eval(t, render, "<+long>", &expression.Environment{Scope: bomb})
	require.NoError(t, err)
	assert.Equal(t, long, got)
	_, err = eval(t, render, `<+"ab"><+"cd">`, &expression.Environment{Limits: expression.Limits{Steps: 1}})
	assert.ErrorContains(t, err, "too many steps")
	_, err = eval(t, render, `<+"a" + "b">`, &expression.Environment{Limits: expression.Limits{Bytes: 1}})
	assert.ErrorContains(t, err, "too much memory")
	_, err = eval(t, render, `<+"ab" + "c">`, &expression.Environment{Limits: expression.Limits{ValueBytes: 2}})
	assert.ErrorContains(t, err, "more than 2 bytes")
}

func TestNumbersHaveTheTextOfJava(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{"1.0": 1, "0.5": 0.5, "-0.0": math.Copysign(0, -1), "100000.0": 1e5, "1.0E7": 1e7, "1.5E-5": 1.5e-5, "0.001": 1e-3, "9999999.0": 9999999, "NaN": math.NaN(), "-Infinity": math.Inf(-1), "1.234567890123E12": 1.234567890123e12} {
		got, err := eval(t, render, `x<+f>`, &expression.Environment{Scope: names{"f": f}})
		require.NoError(t, err)
		assert.Equal(t, "x"+want, got)
	}
}
