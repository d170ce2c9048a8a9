package secrets_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// reference is masking as its definition reads: mark every byte of every
// occurrence of every needle, then replace each run of marked bytes.
func reference(needles []string, text string) string {
	marked := make([]bool, len(text))
	for _, n := range needles {
		for i := 0; n != "" && i+len(n) <= len(text); i++ {
			if text[i:i+len(n)] == n {
				for j := range n {
					marked[i+j] = true
				}
			}
		}
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

// masked writes text in pieces that end at the offsets in cuts.
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

// SPEC S4.
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
		{"the longest of two with one beginning", []string{"pass", "password123"}, "x password123 y", "x ****** y"},
		{"the shorter one where the longer one does not go on", []string{"pass", "password123"}, "x password12 y", "x ******word12 y"},
		{"a value that overlaps itself", []string{"aab"}, "aaab", "a******"},
		{"a value that overlaps itself twice", []string{"aaa"}, "baaaaab", "b******b"},
		{"overlapping values as one", []string{"abcd", "cdef"}, "xabcdefx", "x******x"},
		{"touching values as one", []string{"abc", "def"}, "xabcdefx", "x******x"},
		{"a value within a value", []string{"bcd", "abcde"}, "abcd abcde", "a****** ******"},
		{"what a longer value's failed match contains", []string{"xabcy", "abc"}, "xabcz", "x******z"},
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

func TestMaskerHoldsBackOnlyWhatMayBecomeASecret(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewSet(secrets.Config{}, "secret", "retire"))
	for _, step := range []struct{ in, out string }{
		{"no ", "no "},
		{"sec", "no "},         // may become "secret"
		{"t", "no sect"},       // cannot any more
		{"secre", "no sect"},   // "secret", or "retire" at its end
		{"t", "no sect******"}, // certain at once, although "ret" may go on
		{"ire", "no sect******"},
		{".", "no sect******."},
	} {
		_, err := io.WriteString(m, step.in)
		require.NoError(t, err)
		assert.Equal(t, step.out, out.String(), "after %q", step.in)
	}
}

func TestFlushShowsABeginningButNotTheRest(t *testing.T) {
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

func TestAddTakesEffectOnHeldText(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "abc", "bcdef")
	var out strings.Builder
	m := secrets.NewMasker(&out, set)
	_, _ = io.WriteString(m, "xabcd") // "bcd" is masked in part and may go on
	set.Add("new-value", "deg")
	_, _ = io.WriteString(m, "ef new-value deg")
	require.NoError(t, m.Close())
	assert.Equal(t, "x****** ****** ******", out.String())
}

func TestAddFindsAValueThatHeldTextBegins(t *testing.T) {
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

func TestMaskerPassesOnErrors(t *testing.T) {
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

// A small alphabet makes values overlap, nest and repeat.
func TestMaskerEqualsTheReferenceOnRandomText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abA+/"[r.IntN(2+r.IntN(4))]
		}
		return string(b)
	}
	for range 3000 {
		var values []string
		for range r.IntN(5) {
			values = append(values, word(1+r.IntN(7)))
		}
		text := word(r.IntN(60))
		cuts := []int{}
		for at := 0; at < len(text); at += 1 + r.IntN(8) {
			cuts = append(cuts, at)
		}
		set := secrets.NewSet(secrets.Config{}, values...)
		want := reference(secrets.Needles(set), text)
		require.Equal(t, want, masked(t, set, text, cuts...), "secrets %q, text %q, cuts %v", values, text, cuts)
		require.Equal(t, want, set.Mask(text), "secrets %q, text %q", values, text)
	}
}

func FuzzMasker(f *testing.F) {
	f.Add("password\x00pass", "my password is pass", []byte{3, 4})
	f.Add("aab", "aaab", []byte{1, 1, 1})
	f.Add("line one is long\nline two is long", "line one is long\r\nline two is long", []byte{17})
	f.Add(`a"b'c$d`, `{"x":"a\"b'c$d"}`, []byte{2})
	f.Add("abc\x00bcdef\x00deg", "xabcdefg", []byte{5})
	f.Fuzz(func(t *testing.T, values, text string, cuts []byte) {
		if len(values) > 200 || len(text) > 2000 {
			return
		}
		set := secrets.NewSet(secrets.Config{}, strings.Split(values, "\x00")...)
		want := reference(secrets.Needles(set), text)
		var at []int
		for i, sum := 0, 0; i < len(cuts) && sum+int(cuts[i]) <= len(text); i++ {
			sum += int(cuts[i])
			at = append(at, sum)
		}
		if got := masked(t, set, text, at...); got != want {
			t.Fatalf("cut: got %q, want %q", got, want)
		}
		if got := set.Mask(text); got != want {
			t.Fatalf("whole: got %q, want %q", got, want)
		}
		// Added on the way, a value is masked in all that comes after.
		late := new(secrets.Set)
		var out strings.Builder
		m := secrets.NewMasker(&out, late)
		half := len(text) / 2
		_, _ = io.WriteString(m, text[:half])
		late.Add(strings.Split(values, "\x00")...)
		_, _ = io.WriteString(m, text[half:])
		_ = m.Close()
		if got, want := out.String(), text[:half]+set.Mask(text[half:]); got != want {
			t.Fatalf("late: got %q, want %q", got, want)
		}
	})
}
