package secrets_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/delegate-io/dlite/secrets"
)

// slowMasker implements the documentation of Masker directly. It searches the whole
// text again with each write.
type slowMasker struct {
	since   map[string]int // for each pattern, the offset of the text at which it was added
	text    string
	open    int // offset of the open suffix
	decided int
	inMask  bool
	out     strings.Builder
	runs    map[dumpID]*slowMasker // of the dumps in the text; of them, only the marks count
}

// add adds patterns. They are masked in the text that has not been written.
func (s *slowMasker) add(patterns []string) {
	if s.since == nil {
		s.since = map[string]int{}
	}
	for _, n := range patterns {
		if _, ok := s.since[n]; !ok {
			s.since[n] = s.open
		}
	}
	runs, _ := dumpsOf(s.text)
	for _, run := range runs {
		if r := s.runs[run.id()]; r != nil && run.open {
			r.add(patterns)
		}
	}
	s.findOpenSuffix()
}

// readDumps updates the runs, and returns the offset of the first byte of dumps that is held
// back.
func (s *slowMasker) readDumps() int {
	runs, hold := dumpsOf(s.text)
	if hold < 0 || len(s.since) == 0 {
		hold = len(s.text)
	}
	for _, run := range runs {
		r := s.runs[run.id()]
		if r == nil {
			r = new(slowMasker)
			if s.runs == nil {
				s.runs = map[dumpID]*slowMasker{}
			}
			s.runs[run.id()] = r
			r.add(slices.Collect(maps.Keys(s.since)))
		}
		r.text = run.text
		r.findOpenInText()
		if run.open && r.open < len(run.at) {
			hold = min(hold, run.at[r.open])
		}
	}
	return hold
}

func (s *slowMasker) findOpenSuffix() {
	hold := max(s.open, s.readDumps())
	s.findOpenInText()
	s.open = min(s.open, hold)
}

// findOpenInText is findOpenSuffix without dumps.
func (s *slowMasker) findOpenInText() {
	data, inBreak := dataOf(s.text)
	first := len(s.text) // of the open suffixes with a break
	for i := range data {
		at := data[i:]
		broken := at[len(at)-1]-at[0] >= len(at)
		from := at[0]
		switch {
		case broken:
			from = beyondShortHead(at)
		case !inBreak || len(at) < 4:
			continue
		}
		if from >= s.open && from < first && s.isBrokenPrefix(at, from) {
			first = from
		}
	}
	for s.open < first && !s.isPrefix(s.text[s.open:]) {
		s.open++
	}
}

// isBrokenPrefix reports whether the bytes at these offsets are a proper prefix of a pattern.
// Its masking begins at from.
func (s *slowMasker) isBrokenPrefix(at []int, from int) bool {
	for n, since := range s.since {
		if since > from || len(n) < 7 || len(n) <= len(at) {
			continue
		}
		same := true
		for j := 0; same && j < len(at); j++ {
			same = s.text[at[j]] == n[j]
		}
		if same {
			return true
		}
	}
	return false
}

// isPrefix reports whether text, at offset open, is a proper prefix of a pattern.
func (s *slowMasker) isPrefix(text string) bool {
	for n, since := range s.since {
		if since <= s.open && len(n) > len(text) && strings.HasPrefix(n, text) {
			return true
		}
	}
	return false
}

func (s *slowMasker) write(text string) {
	s.text += text
	s.findOpenSuffix()
	s.emit(s.open)
}

// marked marks the bytes of the occurrences in the text.
func (s *slowMasker) marked() []bool {
	marked := make([]bool, len(s.text))
	data, _ := dataOf(s.text)
	for n, since := range s.since {
		occurrences(s.text, data, n, func(from, to int) {
			for j := from; j < to && from >= since; j++ {
				marked[j] = true
			}
		})
	}
	return marked
}

// emit writes or masks the text before until, and the masked bytes that follow.
func (s *slowMasker) emit(until int) {
	marked := s.marked()
	runs, _ := dumpsOf(s.text)
	for _, run := range runs {
		if r := s.runs[run.id()]; r != nil {
			run.markLines(marked, s.text, r.marked())
		}
	}
	for ; s.decided < len(s.text) && (s.decided < until || marked[s.decided]); s.decided++ {
		switch {
		case !marked[s.decided]:
			s.out.WriteByte(s.text[s.decided])
		case !s.inMask:
			s.out.WriteString(secrets.Replacement)
		}
		s.inMask = marked[s.decided]
	}
}

// breaks are line breaks that the masker ignores, and some that it does not.
var breaks = []string{
	"\n", "\r\n", "=\r\n", "\n    ", "=\n", "\r\r\n\t", "\n\n", "\r\r\r\n", "\n" + strings.Repeat(" ", 33), "=", "\r", "\n=", "=\r",
}

// nearSecrets returns a text for a script. A byte from 0xC0 on stands for a part of a
// pattern; the next byte selects the part. Other bytes stand for themselves.
func nearSecrets(script string, patterns []string) string {
	var b strings.Builder
	for i := 0; i < len(script) && b.Len() < 4000; i++ {
		c := script[i]
		if c < 0xC0 || len(patterns) == 0 || i+1 == len(script) {
			b.WriteByte(c)
			continue
		}
		n := patterns[int(c-0xC0)*37%len(patterns)]
		i++
		switch part := int(script[i]); {
		case c >= 0xF0 && part%2 == 0:
			n = n[part%len(n)/2:]
			b.WriteString(dumpOf(n[:min(len(n), 40)], part/2, 1+part/20))
		case c >= 0xE0 && part%2 == 1: // in lines
			for k := part%5 + 1; len(n) > k; k = part>>3 + 1 {
				b.WriteString(n[:k] + breaks[(part>>1+k)%len(breaks)])
				n = n[k:]
			}
			b.WriteString(n)
		case part < 0x80:
			b.WriteString(n)
		case part < 0xC0:
			b.WriteString(n[:part%len(n)])
		default:
			b.WriteString(n[part%len(n):])
		}
	}
	return b.String()
}

// FuzzMasker checks that every write has the same output as the slow masker. It varies
// the values, the text, the size of writes, when values are added and text is flushed,
// and when the automaton takes over from the matchers.
func FuzzMasker(f *testing.F) {
	f.Add("password\x00pass", "my password is pass", []byte{3, 4}, uint8(0), uint8(255))
	f.Add("aab", "aaab", []byte{1, 1, 1}, uint8(0), uint8(0))
	f.Add("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", strings.Repeat("a", 100), []byte{9, 50}, uint8(40), uint8(1))
	f.Add("line one is long\nline two is long", "line one is long\r\nline two is long", []byte{17}, uint8(9), uint8(1))
	f.Add(`a"b'c$d`, `{"x":"a\"b'c$d"}`, []byte{2}, uint8(9), uint8(1))
	f.Add("abc\x00bcdef\x00deg", "xabcdefg", []byte{5, 0x80, 0x81, 0x41}, uint8(9), uint8(1))
	f.Add("not-a-real-secret-1\x00not-a-real-secret-22", "\xc1\x90..\xc2\x30,\xc3\xd1\xc4\x99\xc5\xa0",
		[]byte{60, 0xbf, 63, 0x7f, 1, 1, 1}, uint8(20), uint8(60))
	f.Add("not-a-real-secret-1", "\n\xf0\x10\xf0\x12\xf0\x54.\n\xf0\x66 \xf0\x78\n\xf1\xaa\xf0\xbc\xf0\xce\xf0\xe0", []byte{60, 0xbf, 63, 0x7f, 1, 1, 1}, uint8(20), uint8(60))
	f.Fuzz(checkMasker)
}

// checkMasker compares a masker and Set.Mask with the slow implementations. Each byte of
// ops is the length of a write. Its two highest bits select whether to add a value
// before the write, and whether to flush after it.
func checkMasker(t *testing.T, values, script string, ops []byte, credit, automatonBytes uint8) {
	if len(values) > 300 || len(script) > 600 || len(ops) > 200 {
		return
	}
	all := strings.Split(values, "\x00")
	text := nearSecrets(script, secrets.Patterns(secrets.NewSet(secrets.Config{}, all...)))

	set := new(secrets.Set)
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	secrets.LimitMatchers(m, int(credit)*4, int(automatonBytes))
	var slow slowMasker
	add := func() {
		if len(all) > 0 {
			set.Add(all[0])
			all = all[1:]
		}
	}
	requireSame := func(step string) {
		t.Helper()
		if got, want := out.String(), slow.out.String(); got != want {
			t.Fatalf("%s of %q: got %q, want %q, read %q\nvalues %q ops %v credit %d %d", step, text, got, want, slow.text, values, ops, credit, automatonBytes)
		}
	}
	add()
	for _, op := range ops {
		if op&0x80 != 0 {
			add()
		}
		n := min(int(op&0x3f), len(text))
		_, _ = m.Write([]byte(text[:n]))
		slow.add(secrets.Patterns(set))
		slow.write(text[:n])
		text = text[n:]
		requireSame("write")
		if op&0x40 != 0 {
			_ = m.Flush()
			slow.emit(len(slow.text))
			requireSame("flush")
		}
	}
	if len(all) > 0 {
		set.Add(all...)
	}
	_, _ = m.Write([]byte(text))
	slow.add(secrets.Patterns(set))
	slow.write(text)
	requireSame("last write")
	_ = m.Close()
	slow.emit(len(slow.text))
	requireSame("close")

	if got, want := set.Mask(slow.text), reference(secrets.Patterns(set), slow.text); got != want {
		t.Fatalf("values %q whole %q: got %q, want %q", values, slow.text, got, want)
	}
}

// encodings returns inputs that show a value, made by other code than the masker's, and
// the texts that must never be in the output.
func encodings(value string, before, after []byte) (inputs, never []string) {
	both := func(s string) {
		inputs = append(inputs, s)
		never = append(never, s)
	}
	both(value)
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		both(enc.EncodeToString([]byte(value)))
		whole := enc.EncodeToString([]byte(string(before) + value + string(after)))
		inputs = append(inputs, whole)
		from, to := (len(before)*8+5)/6, (len(before)+len(value))*8/6
		if to-from >= 6 {
			never = append(never, whole[from:to])
		}
	}
	both(url.QueryEscape(value))
	both(url.PathEscape(value))
	both(strings.ReplaceAll(value, "'", `'\''`))
	both(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value))
	if len(value) >= 4 {
		both(hex.EncodeToString([]byte(value)))
		both(strings.ToUpper(hex.EncodeToString([]byte(value))))
	}
	if enc, err := json.Marshal(value); err == nil && utf8.ValidString(value) &&
		!strings.ContainsAny(value, "\u2028\u2029") {
		both(string(enc[1 : len(enc)-1]))
	}
	if !strings.Contains(value, "\r") {
		for _, end := range []string{"\r\n", "\r", "\r\r\n"} {
			both(strings.ReplaceAll(value, "\n", end))
		}
	}
	return inputs, never
}

// FuzzOutputShowsNoValue checks that no output contains a complete value or an encoding
// of it. writes is the length of the writes; its highest bit selects whether to flush
// after each. A flush shows the beginning of a value, but never its end.
func FuzzOutputShowsNoValue(f *testing.F) {
	f.Add("hunter22\x00not-a-real-secret", "user:", []byte("u:"), []byte("@h"), uint8(7))
	f.Add("two lines\nof a \"value\"", "\n", []byte(""), []byte("\n"), uint8(1))
	f.Add("it's <b>&é$(x)`\\", "%20", []byte("a"), []byte("b"), uint8(3))
	f.Add("not-a-real-secret\x00real-sec", "", []byte("u:"), []byte(""), uint8(0x80|5))
	f.Fuzz(func(t *testing.T, values, between string, before, after []byte, writes uint8) {
		// Text around a Replacement could equal a value with "*" by accident.
		if len(values) > 300 || len(between)+len(before)+len(after) > 100 || strings.Contains(values, "*") {
			return
		}
		set := new(secrets.Set)
		var text strings.Builder
		var all []string
		for v := range strings.SplitSeq(values, "\x00") {
			v = strings.TrimRight(v, "\r\n")
			if utf8.RuneCountInString(v) < 3 || strings.TrimSpace(v) == "" {
				continue // documented as not masked
			}
			set.Add(v)
			inputs, never := encodings(v, before, after)
			all = append(all, never...)
			for _, in := range inputs {
				text.WriteString(between + in)
			}
		}
		var out strings.Builder
		m := secrets.NewMasker(&out, set)
		size := int(writes & 0x7f)
		if size == 0 {
			size = max(text.Len(), 1)
		}
		eachChunk([]byte(text.String()), size, func(p []byte) {
			_, _ = m.Write(p)
			if writes&0x80 != 0 {
				_ = m.Flush()
			}
		})
		_ = m.Close()
		for _, n := range all {
			if strings.Contains(out.String(), n) {
				t.Fatalf("%q is visible in %q", n, out.String())
			}
		}
	})
}
