package secrets_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// lineBreak is a break as the package documentation defines it, in a text that goes on.
var lineBreak = regexp.MustCompile(`^=?\r?\r?\n[ \t]{0,32}`)

// breakBegins matches the beginning of a break that ends the text.
var breakBegins = regexp.MustCompile(`^(=|=?\r\r?|=?\r?\r?\n[ \t]{0,32})$`)

// dataOf returns the offsets of the bytes of text that are no part of a break, and whether
// the text ends with the beginning of a break.
func dataOf(text string) (data []int, open bool) {
	for i := 0; i < len(text); {
		after := byte(0)
		if i > 0 {
			after = text[i-1]
		}
		if !strings.ContainsRune("=\r\n", rune(text[i])) {
			data = append(data, i)
			i++
			continue
		}
		if may := after != '\n' && after != '\r' && (after != '=' || text[i] == '='); may && i > 0 {
			if breakBegins.MatchString(text[i:]) {
				return data, true
			}
			if n := len(lineBreak.FindString(text[i:])); n > 0 && !strings.ContainsRune(" \t\r\n", rune(text[i+n])) && (text[i+n] != '=' || text[i+n-1] == '\n') {
				i += n // the byte after it is data
			}
		}
		data = append(data, i)
		i++
	}
	return data, false
}

// occurrences calls f for each occurrence of a pattern in text, alone or with breaks.
func occurrences(text string, data []int, pattern string, f func(from, to int)) {
	for i := 0; pattern != "" && i+len(pattern) <= len(text); i++ {
		if text[i:i+len(pattern)] == pattern {
			f(i, i+len(pattern))
		}
	}
	if len(pattern) < 7 {
		return
	}
	for i := 0; i+len(pattern) <= len(data); i++ {
		at := data[i : i+len(pattern)]
		same := at[len(at)-1]-at[0] >= len(at)
		for j := 0; same && j < len(pattern); j++ {
			same = text[at[j]] == pattern[j]
		}
		if same {
			f(beyondShortHead(at), at[len(at)-1]+1)
		}
	}
}

// beyondShortHead returns the first of the offsets, or the one after the first break if fewer
// than four precede the break.
func beyondShortHead(at []int) int {
	for j := 1; j < min(4, len(at)); j++ {
		if at[j] > at[j-1]+1 {
			return at[j]
		}
	}
	return at[0]
}

// reference implements the definition of masking directly: mark the bytes of every
// occurrence of every pattern, also in the rows of dumps, then replace each run of marked
// bytes.
func reference(patterns []string, text string) string {
	marked := mark(patterns, text)
	runs, _ := dumpsOf(text)
	for _, r := range runs {
		r.markLines(marked, text, mark(patterns, r.text))
	}
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !marked[i]:
			b.WriteByte(text[i])
		case i == 0 || !marked[i-1]:
			b.WriteString(secrets.Replacement)
		}
	}
	return b.String()
}

// mark marks the bytes of every occurrence of every pattern.
func mark(patterns []string, text string) []bool {
	marked := make([]bool, len(text))
	data, _ := dataOf(text)
	for _, n := range patterns {
		occurrences(text, data, n, func(from, to int) {
			for j := from; j < to; j++ {
				marked[j] = true
			}
		})
	}
	return marked
}

// masked returns the output for text. The writes end at the offsets in cuts.
func masked(t *testing.T, set *secrets.Set, text string, cuts ...int) string {
	t.Helper()
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	last := 0
	for _, c := range append(cuts, len(text)) {
		n, err := m.Write([]byte(text[last:c]))
		require.NoError(t, err)
		require.Equal(t, c-last, n)
		last = c
	}
	require.NoError(t, m.Close())
	return out.String()
}

// Rule S4.
func TestMaskerMasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		secrets []string
		in, out string
	}{
		{"nothing without secrets", nil, "hello\n", "hello\n"},
		{"a value", []string{"hunter22"}, "a hunter22 b", "a ****** b"},
		{"every occurrence", []string{"abc"}, "abc-abc", "******-******"},
		{"the longer of two values with a common prefix", []string{"pass", "password123"}, "x password123 y", "x ****** y"},
		{"the shorter value if the longer one does not match", []string{"pass", "password123"}, "x password12 y", "x ******word12 y"},
		{"a value that overlaps itself", []string{"aab"}, "aaab", "a******"},
		{"a value that overlaps itself twice", []string{"aaa"}, "baaaaab", "b******b"},
		{"overlapping values as one", []string{"abcd", "cdef"}, "xabcdefx", "x******x"},
		{"touching values as one", []string{"abc", "def"}, "xabcdefx", "x******x"},
		{"a value within a value", []string{"bcd", "abcde"}, "abcd abcde", "a****** ******"},
		{"a value inside a failed match of a longer value", []string{"xabcy", "abc"}, "xabcz", "x******z"},
		{"without the newline at the end", []string{"hunter22\r\n"}, "hunter22", "******"},
		{"nothing of less than three characters", []string{"ab", "é1", ""}, "ab é1", "ab é1"},
		{"no white space", []string{"    ", "\n\n\n"}, "a     b", "a     b"},
		{"at both ends", []string{"abc"}, "abc", "******"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := secrets.NewSet(secrets.Config{}, tt.secrets...)
			assert.Equal(t, tt.out, set.Mask(tt.in), "Set.Mask")
			for cut := range len(tt.in) + 1 {
				assert.Equal(t, tt.out, masked(t, set, tt.in, cut), "cut at %d", cut)
			}
		})
	}
}

// The example in the note at the top of masker.go.
func TestMaskerWorksAsTheNoteOnItsAlgorithmShows(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewPlainSet("pass", "password1"))
	for _, step := range []struct{ in, out string }{
		{"my pass", "my ******"}, {"word1 or ", " or "}, {"pa", ""}, {"y", "pay"},
	} {
		out.Reset()
		_, err := io.WriteString(m, step.in)
		require.NoError(t, err)
		assert.Equal(t, step.out, out.String(), step.in)
	}
}

func TestMaskerHoldsBackOnlyPossibleSecrets(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewSet(secrets.Config{}, "secret", "retire"))
	for _, step := range []struct{ in, out string }{
		{"no ", "no "},
		{"sec", "no "},         // may be the beginning of "secret"
		{"t", "no sect"},       // is no secret
		{"secre", "no sect"},   // "secret", or the beginning of "retire" in it
		{"t", "no sect******"}, // decided at once, although "ret" may be a beginning
		{"ire", "no sect******"},
		{".", "no sect******."},
	} {
		_, err := io.WriteString(m, step.in)
		require.NoError(t, err)
		assert.Equal(t, step.out, out.String(), "after %q", step.in)
	}
}

func TestFlushShowsOnlyTheBeginningOfASecret(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewSet(secrets.Config{}, "password"))
	_, _ = io.WriteString(m, "> pass")
	require.NoError(t, m.Flush())
	assert.Equal(t, "> pass", out.String())
	_, _ = io.WriteString(m, "word!")
	require.NoError(t, m.Close())
	assert.Equal(t, "> pass******!", out.String())
}

func TestAddedValuesAreMaskedInHeldText(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "abc", "bcdef")
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	_, _ = io.WriteString(m, "xabcd") // "bcd" may be the beginning of "bcdef"
	set.Add("new-value", "deg")
	_, _ = io.WriteString(m, "ef new-value deg")
	require.NoError(t, m.Close())
	assert.Equal(t, "x****** ****** ******", out.String())
}

func TestAddedValueMayBeginInHeldText(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "abcdefgh")
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	_, _ = io.WriteString(m, "abcdef")
	set.Add("cdefxy")
	_, _ = io.WriteString(m, "xy")
	require.NoError(t, m.Close())
	assert.Equal(t, "ab******", out.String())
}

func TestFlushMasksValuesAddedAfterTheLastWrite(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "abcdefgh")
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	_, _ = io.WriteString(m, "abcdef")
	set.Add("bcd")
	require.NoError(t, m.Flush())
	assert.Equal(t, "a******ef", out.String())
}

func TestMaskerReturnsErrorsOfTheWriter(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	m := secrets.NewMasker(writerFunc(func([]byte) (int, error) { return 0, boom }), new(secrets.Set))
	_, err := io.WriteString(m, "text")
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, m.Close(), boom)
	_, err = io.WriteString(m, "text")
	require.Error(t, err)

	short := secrets.NewMasker(writerFunc(func(p []byte) (int, error) { return len(p) - 1, nil }), new(secrets.Set))
	_, err = io.WriteString(short, "text")
	require.ErrorIs(t, err, io.ErrShortWrite)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestMaskersAndSetWorkConcurrently(t *testing.T) {
	t.Parallel()
	set := new(secrets.Set)
	var out bytes.Buffer
	m := secrets.NewMasker(&out, set)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 200 {
				set.Add("shared-value")
				_, _ = io.WriteString(m, "shared-value\n")
				set.Add("own-value-" + strings.Repeat("x", i))
				_ = set.Mask("shared-value")
				_ = set.String()
			}
		})
	}
	wg.Wait()
	require.NoError(t, m.Close())
	assert.NotContains(t, out.String(), "shared-value")
	assert.Equal(t, 800, strings.Count(out.String(), "\n"))
}

// With a small alphabet, values overlap, nest and repeat.
func TestMaskerEqualsTheSlowMaskerOnRandomText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abA+/"[r.IntN(2+r.IntN(4))]
		}
		return string(b)
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for i := range 1000 {
		var values []string
		for range r.IntN(5) {
			values = append(values, word(1+r.IntN(7)*(1+r.IntN(5))))
		}
		script := word(r.IntN(60))
		switch i % 6 {
		case 1, 2, 3, 4:
			script = string(random(r.IntN(40)))
		case 5: // dumps
			script = ""
			for range r.IntN(6) {
				script += []string{"", "", "\n", " ", "0", "\n6"}[r.IntN(6)] + string([]byte{byte(0xF0 + r.IntN(16)), byte(r.IntN(128) * 2)})
			}
		}
		ops := random(r.IntN(30))
		checkMasker(t, strings.Join(values, "\x00"), script, ops, uint8(r.IntN(256)>>r.IntN(9)), uint8(r.IntN(256)))
	}
}

// After an error, Write returns the number of bytes of p that it has handled.
func TestMaskerWritesLargeTextInParts(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "visibly-fake-value")
	line := strings.Repeat(".", 981) + "visibly-fake-value\n"
	text := strings.Repeat(line, 1000)
	assert.Equal(t, strings.ReplaceAll(text, "visibly-fake-value", "******"), masked(t, set, text))

	boom := errors.New("boom")
	var passed int
	m := secrets.NewMasker(writerFunc(func(p []byte) (int, error) {
		assert.LessOrEqual(t, len(p), 1<<17)
		if passed > 300_000 {
			return 0, boom
		}
		passed += len(p)
		return len(p), nil
	}), set)
	n, err := io.WriteString(m, text)
	require.ErrorIs(t, err, boom)
	assert.Greater(t, n, 200_000)
	assert.Less(t, n, 400_000)
}

// The automaton searches text that resembles secrets, and the matchers search the text
// after it. No secret is missed at a change.
func TestAutomatonAndMatchersTakeTurns(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, strings.Repeat("a", 40)+"b", "visibly-fake-value")
	var out bytes.Buffer
	m := secrets.NewMasker(&out, set)
	secrets.LimitMatchers(m, 1000, 20_000)
	var want strings.Builder
	modes := map[bool]int{}
	for range 20 {
		for _, text := range []string{
			strings.Repeat("a", 10_000) + "visibly-fake-value" + strings.Repeat("a", 40) + "b\n",
			strings.Repeat("nothing at all\n", 3000), "visibly-fake-value\n",
		} {
			_, err := io.WriteString(m, text)
			require.NoError(t, err)
			want.WriteString(reference(secrets.Patterns(set), text))
			modes[secrets.UsesAutomaton(m)]++
		}
	}
	require.NoError(t, m.Close())
	require.Equal(t, want.String(), out.String())
	assert.Greater(t, modes[true], 10)
	assert.Greater(t, modes[false], 10)
}

// The text could be the beginning of a secret at every offset and contains other
// secrets. The buffers must not grow with its length.
func TestMaskerBuffersStaySmall(t *testing.T) {
	t.Parallel()
	for _, credit := range []int{0, 1 << 10, 1 << 20} {
		set := secrets.NewSet(secrets.Config{}, strings.Repeat("abc-", 10)+"!", "abc")
		m := secrets.NewMasker(io.Discard, set)
		secrets.LimitMatchers(m, credit, 100_000)
		eachChunk(bytes.Repeat([]byte("abc-"), 100_000), 100, func(p []byte) { _, _ = m.Write(p) })
		assert.Less(t, secrets.BufferSize(m), 16<<10, "credit %d", credit)
	}
}

// This test is not parallel because it counts allocations.
func TestMaskerAllocatesNothingInTheSteadyState(t *testing.T) {
	set := secrets.NewSet(secrets.Config{}, fakeSecrets(100)...)
	text := ciLog(1<<20, fakeSecrets(100))
	attack := bytes.Repeat([]byte(fakeSecrets(1)[0][:19]), 50_000)
	m := secrets.NewMasker(io.Discard, set)
	write := func() {
		for _, text := range [][]byte{text, attack} {
			eachChunk(text, 100, func(p []byte) { _, _ = m.Write(p) })
			eachChunk(text, 32<<10, func(p []byte) { _, _ = m.Write(p) })
		}
	}
	write()
	assert.Zero(t, testing.AllocsPerRun(3, write))
}

// Rule S3: tools wrap encodings, with any width, alignment and indentation.
func TestMaskerIgnoresLineBreaksWithinAForm(t *testing.T) {
	t.Parallel()
	value := "not-a-real-secret-of-any-account"
	set := secrets.NewSet(secrets.Config{}, value, strings.Repeat("a long line of a fake key, 64 columns wide in base64\n", 5))
	for _, end := range []string{"\n", "\r\n", "\n      "} {
		for _, width := range []int{8, 19, 64, 76} {
			for before := range 57 {
				text := strings.Repeat("x", before) + value + strings.Repeat("y", 40)
				for name, encoded := range map[string]string{
					"base64": base64.StdEncoding.EncodeToString([]byte(text)), "hexadecimal": hex.EncodeToString([]byte(text)),
				} {
					var lines []string
					for ; len(encoded) > width; encoded = encoded[width:] {
						lines = append(lines, encoded[:width])
					}
					out := masked(t, set, strings.Join(append(lines, encoded), end)+end)
					rest := strings.NewReplacer("\n", "", "\r", "", " ", "", secrets.Replacement, "****").Replace(out)
					shown := len(text)*4/3 - (len(value)*4/3 - 2) + 4
					if name == "hexadecimal" {
						shown = (len(text)-len(value))*2 + 4
					}
					// Less than four bytes before the first break stay visible.
					require.LessOrEqual(t, len(rest), shown+3+4, "%s, %d columns, %d before: %q", name, width, before, out)
				}
			}
		}
	}
	assert.Equal(t, "******.", set.Mask("not-a-re=\r\nal-secret-of-=\r\nany-account."), "quoted-printable")
	assert.Equal(t, "not-a-real-secret\n\n-of-any-account", set.Mask("not-a-real-secret\n\n-of-any-account"), "an empty line ends a form")
}

// Output must not wait for the next line, unless the line ends like a form begins.
func TestMaskerDoesNotHoldBackTheEndOfALine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewSet(secrets.Config{}, "production-password"))
	for _, step := range []struct{ in, out string }{
		{"deployed to pro\n", "deployed to pro\n"},
		{"deployed to prod\n", "deployed to "},
		{"next\n", "prod\nnext\n"},
		{"pro", ""}, {"\n", "pro\n"}, {"duction-pass", ""}, {"word\n", "******\n"},
	} {
		out.Reset()
		_, err := io.WriteString(m, step.in)
		require.NoError(t, err)
		assert.Equal(t, step.out, out.String(), "after %q", step.in)
	}
}
