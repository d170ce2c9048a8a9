package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The text form of a place keeps which logs were read, in any order of their ends.
func TestACursorKeepsThePlaceOfEachLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const logs = 30
		done, next := map[int]bool{}, map[int]int64{}
		c, err := parseCursor("")
		require.NoError(t, err)
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			n := rapid.IntRange(1, logs).Draw(t, "log")
			switch {
			case rapid.Bool().Draw(t, "ends"):
				c.finish(n, n)
				done[n] = true
				delete(next, n)
			case !done[n]:
				next[n] = rapid.Int64Range(0, 1<<40).Draw(t, "line")
				c.next[n] = next[n]
			}
			c, err = parseCursor(c.String())
			require.NoError(t, err)
			assert.Equal(t, next, c.next)
			for n := range logs + 2 {
				assert.Equal(t, done[n], c.finished(n), "%d of %s", n, c)
			}
		}
	})
}

func TestACursorIsCheckedStrictly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{",", "0", "-1", "1-", "3-2", "2,1", "1,1", "1-3,3", "1:-1", "1:", "1-2:3", "1:2:3", "x", " 1", "9999999999", "1;2"} {
		_, err := parseCursor(text)
		assert.Error(t, err, text)
	}
}
