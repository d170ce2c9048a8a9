package secrets_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/secrets"
)

// Rule S3. The rows are the output of xxd, od and hexdump.
func TestMaskerMasksTheRowsThatShowASecret(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, "fake-key-123")
	for name, tt := range map[string]struct{ in, out string }{
		"xxd":          {"00000000: 6120 6661 6b65 2d6b 6579 2d31 3233 2062  a fake-key-123 b\n", "00000000: 6120 ******\n"},
		"xxd -e":       {"00000000: 656b6166 79656b2d 3332312d           fake-key-123\n", "00000000: ******\n"},
		"two rows":     {"00000000: 6120 6661 6b65  a fake\n00000006: 2d6b 6579 2d31  -key-1\n0000000c: 3233       23\n", "00000000: 6120 ******\n"},
		"od":           {"0000000 060546 062553 065455 074545 030455 031462\n0000014\n", "0000000 ******\n0000014\n"},
		"od -c":        {"0000000   a  \\n   f   a   k   e   -   k\n0000010   e   y   -   1   2   3  \\n\n", "0000000   a  \\n   ******\n"},
		"od -An -tx1":  {" 66 61 6b 65 2d 6b 65 79\n 2d 31 32 33 0a\nnext\n", " ******\nnext\n"},
		"od -tx1 -c":   {"0000000  66  61  6b  65  2d  6b  65  79\n          f   a   k   e   -   k   e   y\n0000010  2d  31  32  33\n          -   1   2   3\n", "0000000  ******\n"},
		"hexdump":      {"0000000 6166 656b 6b2d 7965 312d 3332               \n000000c\n", "0000000 ******\n000000c\n"},
		"hexdump -C":   {"00000000  61 20 66 61 6b 65 2d 6b  65 79 2d 31 32 33 0a     |a fake-key-123.|\n", "00000000  61 20 ******\n"},
		"CRLF":         {" 66 61 6b 65 2d 6b 65 79\r\n 2d 31 32 33\r\nnext\r\n", " ******\r\nnext\r\n"},
		"xxd -b":       {"00000000: 01100001 00100000 01100110 01100001 01101011 01100101  a fake\n00000006: 00101101 01101011 01100101 01111001 00101101 00110001  -key-1\n0000000c: 00110010 00110011  23\n", "00000000: 01100001 00100000 ******\n"},
		"xxd -i":       {"  0x61, 0x20, 0x66, 0x61, 0x6b, 0x65, 0x2d, 0x6b, 0x65, 0x79, 0x2d, 0x31,\n  0x32, 0X33\n};\n", "  0x61, 0x20, 0x******\n};\n"},
		"without rows": {"66 61 6b 65 2d 6b\n\n65 79 2d 31 32 33\n", "66 61 6b 65 2d 6b\n\n65 79 2d 31 32 33\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.out, set.Mask(tt.in), "Set.Mask")
			for cut := range len(tt.in) + 1 {
				assert.Equal(t, tt.out, masked(t, set, tt.in, cut), "cut at %d", cut)
			}
		})
	}
}

func TestMaskerDoesNotChangeRowsWithoutASecret(t *testing.T) {
	t.Parallel()
	set := secrets.NewSet(secrets.Config{}, fakeSecrets(20)...)
	text := string(ciLog(4<<10, nil))
	for format := range 12 {
		for _, columns := range []int{1, 7, 16, 32} {
			dump := dumpOf(text, format, columns)
			require.Equal(t, dump, set.Mask(dump), "format %d", format)
			require.Equal(t, dump, masked(t, set, dump, 1, 100, 1000, 1001), "format %d in parts", format)
		}
	}
}

func TestMaskerHoldsBackARowOnlyFromAPossibleSecretOn(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewPlainSet("fake-key"))
	for _, step := range []struct{ in, out string }{
		{"00000000: 6162", "00000000: "}, // the group may go on
		{" 63", "6162 "},
		{"64 ", "6364 "},
		{"6661  ab", ""}, // "fa" may be the beginning
		{"cdfa\n00000006: 6263 ", "6661  abcdfa\n00000006: 6263 "},
		{"6661 ", ""}, {"6b65 2d6b 6579", ""}, {" ", "******"}, {" ..fake-key", ""}, {"\n", "\n"},
	} {
		out.Reset()
		_, err := io.WriteString(m, step.in)
		require.NoError(t, err)
		assert.Equal(t, step.out, out.String(), "after %q", step.in)
	}
}

func TestFlushMasksTheRestOfARowWhoseBeginningItShows(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	m := secrets.NewMasker(&out, secrets.NewPlainSet("fake-key"))
	_, _ = io.WriteString(m, " 66 61 6b 65 2d ")
	require.NoError(t, m.Flush())
	_, _ = io.WriteString(m, "6b 65 79 2e\nnext\n")
	require.NoError(t, m.Close())
	assert.Equal(t, " 66 61 6b 65 2d ******\nnext\n", out.String())
}

// The text is a dump of the beginning of a secret, again and again. Lines with few cells
// and much other text must not fill the buffers either.
func TestMaskerBuffersStaySmallInDumps(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("abc-", 50)
	for name, text := range map[string]string{
		"almost the secret": dumpOf(strings.Repeat(value, 20), 1, 16),
		"a long line":       " 61 62 63\n 2d" + strings.Repeat(" 61 62 63 2d", 100) + strings.Repeat("x", 100_000) + "\n",
		"long lines":        strings.Repeat(" 61 "+strings.Repeat("x", 5000)+"\n 62 "+strings.Repeat("y", 5000)+"\n", 20),
		"blanks":            strings.Repeat(" ", 100_000),
		"digits":            strings.Repeat("6", 100_000),
		"secrets":           dumpOf(strings.Repeat(value+"!", 20), 5, 16),
	} {
		for _, credit := range []int{0, 1 << 10, 1 << 20} {
			m := secrets.NewMasker(io.Discard, secrets.NewPlainSet(value+"!", strings.Repeat("61", 3)))
			secrets.LimitMatchers(m, credit, 100_000)
			for range 5 {
				eachChunk([]byte(text), 100, func(p []byte) { _, _ = m.Write(p) })
				_ = m.Flush()
				_ = m.Flush()
			}
			assert.Less(t, secrets.BufferSize(m), 64<<10, "%s, credit %d", name, credit)
		}
	}
}

// This test is not parallel because it counts allocations.
func TestMaskerAllocatesNothingForDumpsInTheSteadyState(t *testing.T) {
	set := secrets.NewSet(secrets.Config{}, fakeSecrets(100)...)
	dump := []byte(dumpOf(string(ciLog(8<<10, nil))+fakeSecrets(1)[0], 0, 16) + "end\n")
	m := secrets.NewMasker(io.Discard, set)
	write := func() {
		eachChunk(dump, 100, func(p []byte) { _, _ = m.Write(p) })
		eachChunk(dump, 32<<10, func(p []byte) { _, _ = m.Write(p) })
	}
	write()
	assert.Zero(t, testing.AllocsPerRun(3, write))
}

func TestMaskerMasksTheDumpsOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	value := "visibly-fake-value-of-two-rows"
	set := secrets.NewSet(secrets.Config{}, value)
	for before := range 40 {
		out := set.Mask(hex.Dump(bytes.Join([][]byte{bytes.Repeat([]byte("<"), before), []byte(value), []byte(">")}, nil)))
		shown := strings.Contains(out, "76 69 73") || strings.Contains(out, "7d") || strings.Contains(out, "fake")
		assert.False(t, shown, "%d bytes before: %s", before, out)
		assert.Equal(t, 1, strings.Count(out, secrets.Replacement))
	}
}
