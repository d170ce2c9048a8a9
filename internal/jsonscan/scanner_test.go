package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/jsonscan"
)

func Example() {
	s := jsonscan.New([]byte(`{"id": 7, "tags": ["a"]}`))
	ok := s.Object(0, func(name, value, _ []byte) {
		fmt.Printf("%s = %s\n", name, value)
	})
	fmt.Println(ok)
	// Output:
	// id = 7
	// tags = ["a"]
	// true
}

var texts = []string{
	``, ` `, `null`, ` true `, `false`, `tru`, `nul`, `0`, `-0`, `-`, `01`, `1.`, `1.5e+7`, `1e`, `1e+`, `.5`, `+1`, `"`, `""`, `"a`, `"a"b`,
	`"\x"`, `"\u12g4"`, `"\u00e9\ud83d\ude00\ud800"`, `"\`, "\"0123456\x1f\"", "\"\x7f\xff\"", `[]`, `[`, `]`, `[1,]`, `[,1]`, `[1 2]`, `[[],{}]`,
	`{}`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{1:1}`, `{"a":{"a":[1,"]}"]},"\u0061":2}`, "{\r\n\t\"a\" : 1 }", `{"a":1}x`,
	`{"a\\":"\\","b":"\""}`,
}

func FuzzScannerAgreesWithEncodingJSON(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		require.Equal(t, json.Valid(text), jsonscan.Valid(text), "%q", text)
		var want map[string]json.RawMessage
		trimmed := bytes.TrimLeft(text, " \t\r\n")
		if !json.Valid(text) || trimmed[0] != '{' {
			return
		}
		require.NoError(t, json.Unmarshal(text, &want))
		got := map[string]json.RawMessage{}
		s := jsonscan.New(trimmed)
		require.True(t, s.Object(0, func(name, value, member []byte) {
			got[jsonscan.Unquote(name)] = value
			require.True(t, json.Valid([]byte("{"+string(member)+"}")), "%q", member)
			require.True(t, bytes.HasSuffix(member, value), "%q", member)
			require.True(t, bytes.HasPrefix(member[1:], name), "%q", member)
		}))
		require.Equal(t, want, got)
	})
}

// StringEnd is the fast way through a text that is valid.
func FuzzStringEndFindsTheClosingQuote(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := jsonscan.New(text)
		end := jsonscan.StringEnd(text)
		require.LessOrEqual(t, end, len(text))
		if inside, ok := s.String(); ok {
			require.Equal(t, len(inside), jsonscan.StringEnd(text[1:]), "%q", text)
		}
	})
}

func TestScannerBoundsNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{jsonscan.MaxDepth - 1, jsonscan.MaxDepth, jsonscan.MaxDepth + 1, 5_000_000} {
		for _, brackets := range []string{"[]", "{}"} {
			begin, end := brackets[:1], brackets[1:]
			if begin == "{" {
				begin = `{"a":`
			}
			text := []byte(strings.Repeat(begin, depth) + "1" + strings.Repeat(end, depth))
			assert.Equal(t, json.Valid(text), jsonscan.Valid(text), "%d levels of %s", depth, brackets)
		}
	}
}

func TestScannerAllocatesNothing(t *testing.T) {
	text := []byte(`{"a":[1,"\n"],"b":{"c":null}}`)
	names := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		s := jsonscan.New(text)
		s.Object(0, func(_, _, _ []byte) { names++ })
	}))
	assert.NotZero(t, names)
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`[` + strings.Repeat(`{"level":"info","pos":123456,"out":"`+strings.Repeat("compiling a file ", 6)+`\n"},`, 1000) + `null]`)
	for name, valid := range map[string]func([]byte) bool{"jsonscan": jsonscan.Valid, "encoding/json": json.Valid} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !valid(text) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
