package drone

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lines of a log are its text, also if a write has a part of a line. Their positions count from
// 0, and no line is too long.
func FuzzLines(f *testing.F) {
	f.Add("one\ntwo", 3)
	f.Add("\n\n", 1)
	f.Add(strings.Repeat("\u00e4", maxLine)+"\nend\n", 4096)
	f.Add(strings.Repeat("line\n", maxInMemory/8), 7000)
	f.Add("\x1b]1338;e30=\x1b]0m\nafter\n", 5)
	f.Fuzz(func(t *testing.T, text string, size int) {
		l := &stepLog{wake: make(chan struct{}, 1)}
		defer l.whole.close()
		size = max(1, min(size, len(text)))
		for rest := text; rest != ""; {
			n, err := l.Write([]byte(rest[:min(size, len(rest))]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		if len(l.partial) > 0 {
			l.add(string(l.partial))
		}
		body, length, err := l.whole.body()
		require.NoError(t, err)
		b, err := io.ReadAll(body)
		require.NoError(t, err)
		assert.Len(t, b, int(length))
		var lines []line
		require.NoError(t, json.Unmarshal(b, &lines))
		var all strings.Builder
		for i, one := range lines {
			assert.Equal(t, i, one.Pos)
			all.WriteString(one.Out)
		}
		if utf8.ValidString(text) && !strings.Contains(text, cardBegin) {
			assert.Equal(t, text, all.String())
			for _, one := range lines {
				assert.LessOrEqual(t, len(one.Out), maxLine)
			}
		}
	})
}
