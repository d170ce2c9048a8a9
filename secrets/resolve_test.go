package secrets_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// resolver returns a resolver with the secrets a (value-a), b (with characters that JSON
// escapes), trap (with expressions) and bin (not UTF-8). Its provider "test" returns the
// path of the reference.
func resolver(t *testing.T, set *secrets.Set) *secrets.Resolver {
	t.Helper()
	r := secrets.NewResolver(set, secrets.ResolverConfig{MaxSize: 1 << 20, Providers: secrets.Providers{
		"test": secrets.ProviderFunc(func(_ context.Context, ref *url.URL) (string, error) {
			if ref.Path == "/missing" {
				return "", secrets.ErrNotFound
			}
			return "fetched:" + ref.Host + ref.Path + "#" + ref.Fragment, nil
		}),
	}})
	for id, v := range map[string]string{
		"a": "value-a", "b": "q\"b\\n\n\x01é", "bin": "\xff\xfe-binary",
		"trap": `${{secrets.a}} <{ x | getAsBase64 }> " | getAsBase64 }>`, "empty": "",
		"67c0938c-9348-4c5e": "by uuid", "spaced": "  in  ", "quoted": `"in quotes"`,
	} {
		require.NoError(t, r.Define(id, v))
	}
	return r
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// Rules S1 and S2; docs/protocol.md, section 2.
func TestResolveReplacesOnlyReferencesAndTemplates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"reference":             {`{"k":"${{secrets.a}}"}`, `{"k":"value-a"}`},
		"within text":           {`"x${{secrets.a}}y${{secrets.a}}"`, `"xvalue-ayvalue-a"`},
		"uuid":                  {`"${{secrets.67c0938c-9348-4c5e}}"`, `"by uuid"`},
		"empty value":           {`"[${{secrets.empty}}]"`, `"[]"`},
		"value is escaped":      {`"${{secrets.b}}"`, `"q\"b\\n\n\u0001é"`},
		"value is data":         {`"${{secrets.trap}}"`, `"${{secrets.a}} <{ x | getAsBase64 }> \" | getAsBase64 }>"`},
		"numbers, spaces, rest": {"{ \"n\" :12345678901234567890,\"m\":1e400,\"e\":\"\\/\\u00e9\\ud83d\\ude00\\ud800\", \"s\":\"${{secrets.a}}\" }\n", "{ \"n\" :12345678901234567890,\"m\":1e400,\"e\":\"\\/\\u00e9\\ud83d\\ude00\\ud800\", \"s\":\"value-a\" }\n"},
		"escapes around it":     {`"\u00e9\n${{secrets.a}}\\\u00e9\/"`, `"\u00e9\nvalue-a\\\u00e9\/"`},
		"escapes in it":         {`"\u0024{\u007bsecrets.\u0061}}"`, `"value-a"`},
		"escaped template":      {`"\u003c{ x | getAsBase64 }\u003e"`, `"` + b64("x") + `"`},
		"escaped backslash":     {`"\\u0024{{secrets.a}}"`, `"\\u0024{{secrets.a}}"`},
		"surrogates before it":  {`"\ud83d\ude00${{secrets.a}}\ud83d"`, `"\ud83d\ude00value-a\ud83d"`},
		"provider":              {`"${{secrets.test://h/p/q#f.g}}"`, `"fetched:h/p/q#f.g"`},
		"spaces make it data":   {`"${{ secrets.a }}"`, `"${{ secrets.a }}"`},
		"other namespaces":      {`"${{github.token}} $secrets.a {{secrets.a}}"`, `"${{github.token}} $secrets.a {{secrets.a}}"`},
		"deep":                  {`[[{"a":[{"b":"${{secrets.a}}"}]}],"${{secrets.a}}"]`, `[[{"a":[{"b":"value-a"}]}],"value-a"]`},
		"escaped reference":     {`"$${{secrets.}}{{secrets.a}} ${{secrets.a}}"`, `"${{secrets.a}} value-a"`},
		"escaped begin":         {`"<${{secrets.}}{ x | getAsBase64 }>"`, `"<{ x | getAsBase64 }>"`},
		"escaped end":           {`"<{ a }${{secrets.}}> b | getAsBase64 }>"`, `"` + b64("a }> b") + `"`},
		"escaped function":      {`"<{ a | getAs${{secrets.}}Base64 | getAsBase64 }>"`, `"` + b64("a | getAsBase64") + `"`},
		"a string alone":        {`"${{secrets.a}}"`, `"value-a"`},
		"key of the same text":  {`{"secrets.a":1,"\u0061":"${{secrets.a}}"}`, `{"secrets.a":1,"\u0061":"value-a"}`},

		"template":                    {`"<{ x | getAsBase64 }>"`, `"` + b64("x") + `"`},
		"template of a secret":        {`"<{ user:${{secrets.a}} | getAsBase64 }>"`, `"` + b64("user:value-a") + `"`},
		"no spaces":                   {`"<{${{secrets.a}}|getAsBase64}>"`, `"` + b64("value-a") + `"`},
		"quotes are taken off":        {`"<{ \" ${{secrets.a}}\" | getAsBase64 }>"`, `"` + b64(" value-a") + `"`},
		"empty quotes":                {`"<{ \"\" | getAsBase64 }>"`, `""`},
		"one quote is text":           {`"<{ \" | getAsBase64 }>"`, `"` + b64(`"`) + `"`},
		"quotes of the value stay":    {`"<{ ${{secrets.quoted}} | getAsBase64 }>"`, `"` + b64(`"in quotes"`) + `"`},
		"spaces of the value stay":    {`"<{ ${{secrets.spaced}} | getAsBase64 }>"`, `"` + b64("  in  ") + `"`},
		"pipe in the text":            {`"<{ a|b | getAsBase64 }>"`, `"` + b64("a|b") + `"`},
		"JSON in the text":            {`"<{ {\"r\":{\"password\":\"${{secrets.a}}\"}} | getAsBase64 }>"`, `"` + b64(`{"r":{"password":"value-a"}}`) + `"`},
		"value is not read":           {`"<{ ${{secrets.trap}} | getAsBase64 }>"`, `"` + b64(`${{secrets.a}} <{ x | getAsBase64 }> " | getAsBase64 }>`) + `"`},
		"value ends no template":      {`"<{ ${{secrets.trap}}"`, `"<{ ${{secrets.a}} <{ x | getAsBase64 }> \" | getAsBase64 }>"`},
		"binary":                      {`"<{ ${{secrets.bin}} | getAsBase64 }>"`, `"` + b64("\xff\xfe-binary") + `"`},
		"nested":                      {`"<{ o <{ ${{secrets.a}} | getAsBase64 }> | getAsBase64 }>"`, `"` + b64("o "+b64("value-a")) + `"`},
		"beside each other":           {`"<{ a | getAsBase64 }><{ b | getAsBase64 }>"`, `"` + b64("a") + b64("b") + `"`},
		"twice":                       {`"<{ ${{secrets.a}} | getAsBase64 | getAsBase64 }>"`, `"` + b64(b64("value-a")) + `"`},
		"end right after a reference": {`"<{ ${{secrets.a}}> | getAsBase64 }>"`, `"` + b64("value-a>") + `"`},
		"nothing":                     {`"<{ | getAsBase64 }>"`, `""`},
		"in TypeScript":               {`"const [a] = useState<{ a: string | undefined }>({})"`, `"const [a] = useState<{ a: string | undefined }>({})"`},
		"in TypeScript, and nearby":   {`"f<{ a: B<{ c: <{ x | getAsBase64 }> }> }>"`, `"f<{ a: B<{ c: ` + b64("x") + ` }> }>"`},
		"reference in braces":         {`"f<{ a: \"${{secrets.a}}\" }>"`, `"f<{ a: \"value-a\" }>"`},
		"function first is data":      {`"<{ getAsBase64 x }>"`, `"<{ getAsBase64 x }>"`},
		"end without begin":           {`"x | getAsBase64 }>"`, `"x | getAsBase64 }>"`},
		"begin without end":           {`"<{ x | getAsBase64"`, `"<{ x | getAsBase64"`},
		"escaped newline in it":       {`"<{ a\nb | getAsBase64 }>"`, `"` + b64("a\nb") + `"`},
		"half a surrogate within it":  {`"<{ \ud800 | getAsBase64 }>"`, `"` + b64("\uFFFD") + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resolver(t, &secrets.Set{}).Resolve(t.Context(), []byte(tc.in))
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(got))
			assert.True(t, json.Valid(got))
		})
	}
}

// Rule S1. The error names the reference and shows no value.
func TestResolveErrorsNameTheReference(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("<{ ", secrets.MaxDepth+1) + "x" + strings.Repeat(" | getAsBase64 }>", secrets.MaxDepth+1)
	for name, tc := range map[string]struct{ in, want string }{
		"unknown id":           {`"${{secrets.nope}}"`, "secret reference ${{secrets.nope}}: there is no such secret"},
		"in a template":        {`"<{ ${{secrets.nope}} | getAsBase64 }>"`, "${{secrets.nope}}: there is no such secret"},
		"unknown provider":     {`"${{secrets.none://x}}"`, `${{secrets.none://x}}: this delegate has no secret provider "none"`},
		"provider has nothing": {`"${{secrets.test:///missing}}"`, "${{secrets.test:///missing}}: there is no such secret"},
		"broken URL":           {`"${{secrets.test://[}}"`, "${{secrets.test://[}}: it is not a URL"},
		"user in the URL":      {`"${{secrets.test://u:p@h/}}"`, "a reference must not contain a user or password"},
		"separator in a key":   {`{"$${{secrets.}}{{secrets.a}}": 1}`, "must not be part of an object's key"},
		"expression in it":     {`"${{secrets.a || secrets.b}}"`, "${{secrets.a || secrets.b}}: it is neither"},
		"no end":               {`"${{secrets.a}"`, "not ended by }}"},
		"end in another value": {`["${{secrets.a","}}"]`, "not ended by }}"},
		"key":                  {`{"${{secrets.a}}" : 1}`, "must not be part of an object's key"},
		"template in a key":    {`{"<{ x | getAsBase64 }>":1}`, "must not be part of an object's key"},
		"binary as text":       {`"${{secrets.bin}}"`, "${{secrets.bin}}: its value is not UTF-8 text"},
		"unknown function":     {`"<{ ${{secrets.a}} | getAsbase64 }>"`, `unknown function "getAsbase64"`},
		"template not ended":   {`"<{ ${{secrets.a}} | getAsBase64"`, "is not ended by }>"},
		"too deep":             {`"` + deep + `"`, "more than 16 deep"},
		"too often":            {`"<{ x` + strings.Repeat("|getAsBase64", 1000) + `}>"`, "more than 16 deep"},
		"not JSON":             {`${{secrets.a}}`, "the text is not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resolver(t, &secrets.Set{}).Resolve(t.Context(), []byte(tc.in))
			require.ErrorContains(t, err, tc.want)
			assert.Nil(t, got)
			assert.NotContains(t, err.Error(), "value-a")
		})
	}
}

func TestResolveAllowsTheDocumentedDepth(t *testing.T) {
	t.Parallel()
	want := "x"
	for range secrets.MaxDepth {
		want = b64(want)
	}
	in := `"` + strings.Repeat("<{ ", secrets.MaxDepth) + "x" + strings.Repeat(" | getAsBase64 }>", secrets.MaxDepth) + `"`
	got, err := resolver(t, &secrets.Set{}).Resolve(t.Context(), []byte(in))
	require.NoError(t, err)
	assert.Equal(t, `"`+want+`"`, string(got))
}

// Rule S3. The set has the values and the texts that templates make of them.
func TestResolveAddsValuesAndDerivedTextsToTheSet(t *testing.T) {
	t.Parallel()
	set := &secrets.Set{}
	got, err := resolver(t, set).Resolve(t.Context(),
		[]byte(`["${{secrets.test://h/p}}","<{ <{ id=${{secrets.a}} | getAsBase64 }> and | getAsBase64 }>"]`))
	require.NoError(t, err)
	inner := b64("id=value-a")
	for _, v := range []string{"value-a", "fetched:h/p#", inner, b64(inner + " and")} {
		assert.Equal(t, secrets.Replacement, set.Mask(v), v)
	}
	assert.NotContains(t, set.Mask(string(got)), "fetched")
	assert.Equal(t, b64("plain text"), set.Mask(b64("plain text")), "a text without a secret is not added")
}

func TestResolveBoundsTheSizeOfItsResult(t *testing.T) {
	t.Parallel()
	limit := func(n int) *secrets.Resolver {
		r := secrets.NewResolver(&secrets.Set{}, secrets.ResolverConfig{MaxSize: n})
		require.NoError(t, r.Define("long", strings.Repeat("x", 1000)))
		return r
	}
	for name, in := range map[string]string{
		"values":    `"` + strings.Repeat("${{secrets.long}}", 10) + `"`,
		"templates": `"<{ ` + strings.Repeat("${{secrets.long}}", 5) + ` | getAsBase64 }>"`,
		"data":      `"${{secrets.long}}` + strings.Repeat("y", 9500) + `"`,
	} {
		_, err := limit(10_000).Resolve(t.Context(), []byte(in))
		require.ErrorContains(t, err, "would be larger than 10000 bytes", name)
		_, err = limit(100_000).Resolve(t.Context(), []byte(in))
		assert.NoError(t, err, name)
	}
	require.ErrorContains(t, limit(0).Define("huge", strings.Repeat("x", secrets.MaxValue+1)), "secret reference ${{secrets.huge}}: ")
	_, err := limit(0).Resolve(t.Context(), []byte(`"<{ ${{secrets.long}}`+strings.Repeat("y", secrets.MaxDerived)+` | getAsBase64 }>"`))
	assert.ErrorContains(t, err, "the result of a template with a secret is larger than")
}

// A task sees one value for a reference. The next task fetches again.
func TestResolverFetchesAReferenceOncePerTask(t *testing.T) {
	t.Parallel()
	calls := 0
	cfg := secrets.ResolverConfig{Providers: secrets.Providers{"p": secrets.ProviderFunc(func(context.Context, *url.URL) (string, error) {
		calls++
		return strings.Repeat("v", calls), nil
	})}}
	r := secrets.NewResolver(&secrets.Set{}, cfg)
	for range 2 {
		got, err := r.Resolve(t.Context(), []byte(`["${{secrets.p://x}}","${{secrets.p://x}}"]`))
		require.NoError(t, err)
		assert.Equal(t, `["v","v"]`, string(got))
	}
	got, err := secrets.NewResolver(&secrets.Set{}, cfg).Resolve(t.Context(), []byte(`"${{secrets.p://x}}"`))
	require.NoError(t, err)
	assert.Equal(t, `"vv"`, string(got))
}

func TestResolverBoundsTheNumberOfFetches(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`"`)
	for i := range secrets.MaxFetches {
		b.WriteString("${{secrets.test://h/" + strings.Repeat("i", i) + "}}")
	}
	_, err := resolver(t, &secrets.Set{}).Resolve(t.Context(), []byte(b.String()+`"`))
	require.NoError(t, err)
	_, err = resolver(t, &secrets.Set{}).Resolve(t.Context(), []byte(b.String()+`${{secrets.test://one/more}}"`))
	assert.ErrorContains(t, err, "test://one/more")
}

// The error names the reference of a provider that hangs.
func TestResolverEndsACallAfterItsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := secrets.NewResolver(&secrets.Set{}, secrets.ResolverConfig{Providers: secrets.Providers{
			"slow": secrets.ProviderFunc(func(ctx context.Context, _ *url.URL) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}),
		}})
		_, err := r.Resolve(t.Context(), []byte(`"${{secrets.slow://x}}"`))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "slow://x")
	})
}

func TestErrorsMaskSecretsThatAProviderQuotes(t *testing.T) {
	t.Parallel()
	r := secrets.NewResolver(secrets.NewSet(secrets.Config{}, "known-token"), secrets.ResolverConfig{Providers: secrets.Providers{
		"leaky": secrets.ProviderFunc(func(context.Context, *url.URL) (string, error) {
			return "half-a-value", errors.New("known-token got half-a-value")
		}),
	}})
	_, err := r.Resolve(t.Context(), []byte(`"${{secrets.leaky://x}}"`))
	require.EqualError(t, err, "secret reference ${{secrets.leaky://x}}: ****** got ******")
}

func TestDefineAllowsOneValueForAnID(t *testing.T) {
	t.Parallel()
	r := resolver(t, &secrets.Set{})
	require.NoError(t, r.Define("a", "value-a"), "the same value again is allowed")
	require.ErrorContains(t, r.Define("a", "value-b"), "two secrets have this id")
	require.NoError(t, r.Define("test://h/p", "own"))
	got, err := r.Resolve(t.Context(), []byte(`"${{secrets.test://h/p}}"`))
	require.NoError(t, err)
	assert.Equal(t, `"own"`, string(got), "the task's own secret takes precedence")
}

// Text without expressions is not copied.
func TestResolveReturnsItsInputIfThereIsNothingToReplace(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`{"a":1}`, `"\u0041 secrets.a getAsBase64"`, ``} {
		data := []byte(in)
		got, err := resolver(t, &secrets.Set{}).Resolve(t.Context(), data)
		require.NoError(t, err)
		if len(data) > 0 {
			assert.Same(t, &data[0], &got[0])
		}
	}
}

func TestFieldReturnsAMemberOfADocument(t *testing.T) {
	t.Parallel()
	const doc = `{"a":"x","n":12345678901234567890,"o":{"p":{"q":"deep"}},"l":[{"m":"in"},2],"d.o":"dotted","o.p":{"r":"mixed"},"z":null,"":"e"}`
	for name, want := range map[string]string{
		"": doc, "a": "x", "n": "12345678901234567890", "o.p.q": "deep", "l.0.m": "in", "l.1": "2", "d.o": "dotted",
		"o.p.r": "mixed", "o.p": `{"r":"mixed"}`,
	} {
		got, err := secrets.Field(doc, name)
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	for _, name := range []string{"b", "a.b", "l.2", "l.-1", "l.x", "z", "o.p.q.", "."} {
		_, err := secrets.Field(doc, name)
		require.ErrorIs(t, err, secrets.ErrNotFound, name)
		assert.NotContains(t, err.Error(), "deep")
	}
	_, err := secrets.Field("not-a-real-password", "a")
	require.EqualError(t, err, `the secret has no field "a": it is not JSON`)
}
