package drone

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/logger"
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

// A process was killed while it wrote a line. The next one has the lines before.
func TestALogContinuesAfterAKill(t *testing.T) {
	t.Parallel()
	c := &Client{http: &http.Client{}, store: store{dir: t.TempDir(), prefix: "drone-"}, cfg: Config{Endpoint: "http://127.0.0.1:1"}} // no server
	l := c.openLog(t.Context(), 7, 0)
	_, err := l.Write([]byte("one\ntwo\nrest"))
	require.NoError(t, err)
	l.end()
	l.sender.Wait()
	_, err = l.whole.file.WriteAt([]byte(`,{"pos":2,"out":"to`), l.whole.size)
	require.NoError(t, err)
	require.NoError(t, l.whole.file.Close())

	next, ok := c.Log(nil)(t.Context(), logger.StreamConfig{URL: c.logURL(), Key: "7/0", SkipOpeningStream: true}).(*stepLog)
	require.True(t, ok)
	_, err = next.Write([]byte("three\n"))
	require.NoError(t, err)
	next.end()
	next.sender.Wait()
	body, length, err := next.whole.body()
	require.NoError(t, err)
	b, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Len(t, b, int(length))
	var lines []line
	require.NoError(t, json.Unmarshal(b, &lines))
	var text []string
	for i, one := range lines {
		assert.Equal(t, i, one.Pos)
		text = append(text, one.Out)
	}
	assert.Equal(t, []string{"one\n", "two\n", "three\n"}, text)
	next.whole.close()
	assert.NoFileExists(t, c.store.logPath(7))
}
