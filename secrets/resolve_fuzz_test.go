package secrets_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/delegate-io/dlite/secrets"
)

// The reference implementation replaces each value by a private rune, so that later
// steps cannot look into the value. It performs one step at a time until no expression
// remains.

var (
	anyReference = regexp.MustCompile(`(?s)\$\{\{secrets\.(.*?)\}\}`)
	goodName     = regexp.MustCompile("^[^\\x00-\\x20\\x7f\"'`\\\\{}<>]+$")
	application  = regexp.MustCompile(`(?s)^(.*)\|[ \t\r\n]*getAsBase64[ \t\r\n]*$`)
	unknownFunc  = regexp.MustCompile(`(?s)\|[ \t\r\n]*[a-zA-Z0-9]+[ \t\r\n]*$`)
)

const (
	firstRune = '\U000F0000'
	dataBegin = "\U0010FFF0" // a "<{" that is data
	dataEnd   = "\U0010FFF1"
)

type referenceResolver struct {
	known  map[string]string
	values []string
	depths []int
}

// opaque returns the rune for a value.
func (s *referenceResolver) opaque(v string, depth int) string {
	s.values, s.depths = append(s.values, v), append(s.depths, depth)
	return string(firstRune + rune(len(s.values)-1))
}

// next returns the rune for the next value.
func (s *referenceResolver) next() rune { return firstRune + rune(len(s.values)) }

func (s *referenceResolver) isOpaque(r rune) bool {
	return r >= firstRune && r < firstRune+rune(len(s.values))
}

// reveal replaces the runes by their values.
func (s *referenceResolver) reveal(text string) string {
	for i := len(s.values) - 1; i >= 0; i-- {
		text = strings.ReplaceAll(text, string(firstRune+rune(i)), s.values[i])
	}
	return strings.NewReplacer(dataBegin, "<{", dataEnd, "}>").Replace(text)
}

// resolve reports false if Resolve must fail.
func (s *referenceResolver) resolve(text string) (string, bool) {
	ok := true
	separators := map[rune]bool{} // the values that are no secrets
	text = anyReference.ReplaceAllStringFunc(text, func(ref string) string {
		name := anyReference.FindStringSubmatch(ref)[1]
		if name == "" {
			separators[s.next()] = true
			return s.opaque("", 0)
		}
		v, known := s.known[name]
		if !known || !goodName.MatchString(name) {
			ok = false
		}
		return s.opaque(v, 0)
	})
	if !ok || strings.Contains(text, "${{secrets.") {
		return "", false
	}
	secrets := len(s.values) // later runes may be derived from these
	derived := map[rune]bool{}
	isSecret := func(r rune) bool {
		return s.isOpaque(r) && !separators[r] && (int(r-firstRune) < secrets || derived[r])
	}
	for {
		end := strings.Index(text, "}>")
		if end < 0 {
			break
		}
		begin := strings.LastIndex(text[:end], "<{")
		if begin < 0 {
			text = text[:end] + dataEnd + text[end+2:]
			continue
		}
		inside, depth, times, secret := text[begin+2:end], 0, 0, false
		lastOpaque := rune(-1)
		for _, r := range inside {
			if s.isOpaque(r) {
				depth, secret, lastOpaque = max(depth, s.depths[r-firstRune]), secret || isSecret(r), r
			}
		}
		operand := inside
		for m := application.FindStringSubmatch(operand); m != nil; m = application.FindStringSubmatch(operand) {
			operand, times = m[1], times+1
		}
		if times == 0 {
			tail := inside[strings.LastIndexFunc(inside, s.isOpaque)+1:]
			if lastOpaque >= 0 && isSecret(lastOpaque) && len(tail) < 64 && unknownFunc.MatchString(tail) {
				return "", false
			}
			text = text[:begin] + dataBegin + inside + dataEnd + text[end+2:]
			continue
		}
		if depth+times > 16 {
			return "", false
		}
		operand = strings.Trim(operand, " \t\r\n")
		if len(operand) > 1 && operand[0] == '"' && operand[len(operand)-1] == '"' {
			operand = operand[1 : len(operand)-1]
		}
		v := s.reveal(operand)
		for range times {
			v = base64.StdEncoding.EncodeToString([]byte(v))
		}
		o := s.opaque(v, depth+times)
		r, _ := utf8.DecodeRuneInString(o)
		derived[r] = secret
		text = text[:begin] + o + text[end+2:]
	}
	// A template without end that contains a value and names its function.
	if begin := strings.LastIndex(text, "<{"); begin >= 0 {
		if last := strings.LastIndexFunc(text, s.isOpaque); last > begin && strings.Contains(s.reveal(text[last+4:]), "getAsBase64") {
			return "", false
		}
	}
	for _, r := range text {
		if s.isOpaque(r) && !utf8.ValidString(s.values[r-firstRune]) {
			return "", false
		}
	}
	return s.reveal(text), true
}

// encode returns text as a JSON string. It makes the required escapes, and others at
// random.
func encode(text string, rnd *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch q, _ := json.Marshal(string(r)); {
		case r < 0x10000 && rnd.IntN(4) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '/' && rnd.IntN(2) == 0:
			b.WriteString(`\/`)
		case r == '"' || r == '\\' || r < ' ':
			b.Write(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Rule S2. Resolve agrees with the reference implementation on any text with any escapes.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{
		"${{secrets.a}}", "x <{ ${{secrets.a}} | getAsBase64 }> y", "<{ <{ a | getAsBase64 }> | getAsBase64 }>", "<{ \"${{secrets.trap}}\" | getAsBase64 }>",
		"<{ <{ x }> ${{secrets.a}} }> | getAsBase64 }>", "${{secrets.${{secrets.a}}}}", "<{ ${{secrets.bin}} | getAsBase64 |getAsBase64}>", "${{secrets.bin}}",
		"<{ ${{secrets.a}} | nope }>", "<{ ${{secrets.a}} | getAsBase64", "<{<{<{ }>}>}>}><{", "<{}>", "$${{secrets.quote}}}}", "<{\"|getAsBase64}>", "é<{é|getAsBase64}>😀",
		"$${{secrets.}}{{secrets.a}}", "<${{secrets.}}{ a | getAsBase64 }>", "<{ a }${{secrets.}}> | getAs${{secrets.}}Base64 ${{secrets.}}| getAsBase64 }>", "${{secrets.}}}>${{secrets.",
	} {
		f.Add(s, uint64(1))
	}
	known := map[string]string{"a": "value-a", "trap": "${{secrets.a}} | getAsBase64 }>", "quote": `"`, "bin": "\xff", "e": "", "open": "<{ "}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r >= firstRune }) || len(text) > 300 ||
			strings.Contains(text, "://") || strings.Contains(text, "getAsBase64"+strings.Repeat("|getAsBase64", 20)) {
			return
		}
		r := secrets.NewResolver(&secrets.Set{}, secrets.ResolverConfig{})
		for id, v := range known {
			if err := r.Define(id, v); err != nil {
				t.Fatal(err)
			}
		}
		const before, after = "{\"n\" :1e400 , \"k\":[", " ], \"m\": 12345678901234567890}\n"
		data := before + encode(text, rand.New(rand.NewPCG(seed, 1))) + after
		got, err := r.Resolve(context.Background(), []byte(data))
		want, ok := (&referenceResolver{known: known}).resolve(text)
		if ok != (err == nil) {
			t.Fatalf("%q: the reference says ok=%v, but: %v", text, ok, err)
		}
		if err != nil {
			return
		}
		inner, okBefore := strings.CutPrefix(string(got), before)
		inner, okAfter := strings.CutSuffix(inner, after)
		var value string
		if !okBefore || !okAfter || json.Unmarshal([]byte(inner), &value) != nil || value != want {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
		if want == text && string(got) != data && !strings.Contains(text, "secrets.") {
			t.Fatalf("%q was encoded again: %q", data, got)
		}
	})
}
