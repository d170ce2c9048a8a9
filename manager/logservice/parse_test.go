package logservice

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// parse returns the same result as encoding/json.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`[]`, ` null `, `[{}]`, "[\n{\"pos\":1},\r\n{\"Pos\":2,\"out\":\"a,]}\\\\\\\"\"}]", `[{"level":"info","pos":7,"out":"x"}]`,
		`["x"]`, `[null]`, `[{"pos":1.5}]`, `[{"level":"info","pos":1e2,"a":[{}]}]`, `{"a":[1,2]}`, `[{"a":"\\"},{"b":"\u005c"}]`,
		`[1,]`, `[`, `"[]"`, `[{"level":"info","pos":5}]`, `[{"\u0070os":3}]`, `[{"pos":1,"pos":2}]`, `[{"pos":-0}]`, `[{"pos":null}]`,
		`[{"args":{"pos":4},"time":"","out":"\ud800é€😀` + "\x7f\xff" + `","pos":9,"args":null}]`, `[{"a":01}]`, `[{"a":-}]`,
		`[{"a":1.}]`, `[{"a":1e+}]`, `[{"a":tru}]`, `[{"a":"\x"}]`, `[{"a":"\u12g4"}]`, "[{\"a\":\"0123456\x1f\"}]", `[{"a":1},]`,
		`[{"a":1,}]`, `[{"a" 1}]`, `[{1:1}]`, `[] x`, `[{"pos":9223372036854775808}]`, "[{\"out\":\"x\"\n\r,\"pos\":2}\n]", `[{"a":[1,]}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parse(nil, bytes.Clone(body))
		raws, poss, ok := slowParse(body)
		if ok != (err == nil) {
			t.Fatalf("%q: %v, but %v by encoding/json", body, err, ok)
		}
		if len(got) != len(raws) {
			t.Fatalf("%q: %d lines instead of %d", body, len(got), len(raws))
		}
		for i, l := range got {
			var a, b bytes.Buffer
			_, _ = json.Compact(&a, l.Raw), json.Compact(&b, raws[i])
			if a.String() != b.String() || l.Pos != poss[i] || bytes.ContainsAny(l.Raw, "\r\n") {
				t.Fatalf("%q: line %d is %q at %d instead of %q at %d", body, i, l.Raw, l.Pos, raws[i], poss[i])
			}
		}
	})
}

// slowParse is parse with encoding/json.
func slowParse(body []byte) (raws []json.RawMessage, poss []int64, ok bool) {
	if json.Unmarshal(body, &raws) != nil {
		return nil, nil, false
	}
	for _, raw := range raws {
		var members map[string]json.RawMessage
		if raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
			return nil, nil, false
		}
		var pos int64
		if text, there := members["pos"]; there && json.Unmarshal(text, &pos) != nil {
			return nil, nil, false
		}
		poss = append(poss, pos)
	}
	return raws, poss, true
}

// parse refuses nesting that is too deep for encoding/json and for the stack.
func TestParseBoundsNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{9_990, 9_998, 9_999, 10_000, 5_000_000} {
		body := []byte(`[{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}]`)
		_, err := parse(nil, body)
		assert.Equal(t, json.Valid(body), err == nil, "%d levels", depth)
	}
}

func BenchmarkParse(b *testing.B) {
	line := `{"level":"info","pos":123456,"out":"` + strings.Repeat("compiling a file ", 6)[:99] +
		`\n","time":"2026-01-02T03:04:05.123456789Z","args":null}`
	body := []byte("[" + strings.Repeat(line+",", 5000) + line + "]")
	var lines []livelog.Line
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if lines, err = parse(lines[:0], body); err != nil {
			b.Fatal(err)
		}
	}
}
