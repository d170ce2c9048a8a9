package cgi

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// In any order of writes and reads, the buffer returns its input without some whole lines,
// and counts the bytes of these lines.
func TestABufferLosesWholeLinesAndCountsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(-1, 3*maxBuffer/4), 1, 12).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			b := newBuffer()
			var in, out strings.Builder
			lost := int64(0)
			n := 0
			take := func() {
				text, l, ok := b.next()
				require.True(t, ok)
				out.Write(text)
				lost += l
			}
			pending := false
			for _, size := range steps {
				if size < 0 { // the log takes something
					if pending {
						take()
						pending = false
					}
					continue
				}
				var w strings.Builder
				for w.Len() <= size {
					fmt.Fprintf(&w, "line %d %s\n", n, strings.Repeat("x", n%5000))
					n++
				}
				// A write may end anywhere in a line.
				text := w.String()
				half := len(text) / 3
				for _, part := range []string{text[:half], text[half:]} {
					_, _ = b.Write([]byte(part)) // a wait in Write takes no real time
				}
				in.WriteString(text)
				pending = true
			}
			b.close()
			for {
				text, l, ok := b.next()
				if !ok {
					break
				}
				out.Write(text)
				lost += l
			}
			require.EqualValues(t, in.Len(), int64(out.Len())+lost)
			all := map[string]bool{}
			for line := range strings.Lines(in.String()) {
				all[line] = true
			}
			for line := range strings.Lines(out.String()) {
				require.True(t, all[line], "%.40q is no line that was written", line)
			}
		})
	})
}

// A slow log loses nothing while it takes something from time to time.
func TestASlowLogLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuffer()
		var got, lost int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				text, l, ok := b.next()
				if !ok {
					return
				}
				got, lost = got+int64(len(text)), lost+l
				<-time.After(patience - time.Millisecond)
			}
		}()
		line := []byte(strings.Repeat("x", 1<<15-1) + "\n")
		for range 400 {
			_, _ = b.Write(line)
		}
		b.close()
		<-done
		require.Zero(t, lost)
		require.EqualValues(t, 400*len(line), got)
	})
}
