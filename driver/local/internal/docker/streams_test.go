package docker

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rule S4: a line of one stream is not interrupted by the other stream, even if it arrives in pieces.
// Nothing is lost at the end.
func TestTheStreamsOfAContainerMergeBetweenLines(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	out, err := stdcopy.NewStdWriter(&wire, stdcopy.Stdout), stdcopy.NewStdWriter(&wire, stdcopy.Stderr)
	for i, text := range []string{"a visibly-", "warning\n", "fake-secret\nnext", " oops", "\nand ", "\nmore", "tail", "end"} {
		w := out
		if i%2 == 1 {
			w = err
		}
		_, werr := w.Write([]byte(text))
		require.NoError(t, werr)
	}
	var log bytes.Buffer
	require.NoError(t, copyStreams(&log, &log, &wire))
	assert.Equal(t, "a visibly-fake-secret\nwarning\nnext\n oops\nand tailmoreend", log.String())
}

// An unfinished line is passed on at once. The other stream waits for a limited time and with a
// limited size.
func TestAStreamWaitsForTheOtherForALimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newPair(&log, &log, longestHold)
		write := func(i int, text string) {
			_, err := p.streams[i].Write([]byte(text))
			require.NoError(t, err)
		}
		seen := func() string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return log.String()
		}
		write(0, "password: ")
		assert.Equal(t, "password: ", seen())
		write(1, "working\n")
		assert.Equal(t, "password: ", seen())
		<-time.After(longestHold + time.Millisecond) // inside a synctest bubble
		assert.Equal(t, "password: working\n", seen())
		long := strings.Repeat("x", maxHeld)
		write(1, long)
		assert.Equal(t, "password: working\n"+long, seen())
		require.NoError(t, p.end())
		<-time.After(2 * longestHold)
	})
}

// interleaving records which stream wrote what.
type interleaving struct {
	who   []int
	texts []string
}

type interleaver struct {
	to *interleaving
	i  int
}

func (w interleaver) Write(b []byte) (int, error) {
	w.to.who, w.to.texts = append(w.to.who, w.i), append(w.to.texts, string(b))
	return len(b), nil
}

// However the streams are split into writes, each arrives unchanged. Neither interrupts a line of the
// other except at the end.
func FuzzStreams(f *testing.F) {
	f.Add("a\nb", "c\nd", uint64(0x5))
	f.Add("one\ntwo\n", "\n\nlong line\n", uint64(0xF731))
	f.Fuzz(func(t *testing.T, first, second string, order uint64) {
		if len(first)+len(second) > 1000 {
			return
		}
		var log interleaving
		p := newPair(interleaver{&log, 0}, interleaver{&log, 1}, time.Hour)
		rest := [2]string{first, second}
		for rest[0]+rest[1] != "" {
			i := int(order & 1)
			n := min(len(rest[i]), 1+int(order>>1&3))
			_, _ = p.streams[i].Write([]byte(rest[i][:n]))
			rest[i] = rest[i][n:]
			order = order>>1 | order<<63
			if order == 0 || order == ^uint64(0) {
				order = 0x9E3779B97F4A7C15
			}
		}
		switches := len(log.who)
		require.NoError(t, p.end())
		var got [2]string
		for k, i := range log.who {
			other := got[1-i]
			if k < switches && other != "" && !strings.HasSuffix(other, "\n") {
				t.Fatalf("%q interrupts a line of the other: %q", log.texts[k], other)
			}
			got[i] += log.texts[k]
		}
		require.Equal(t, [2]string{first, second}, got)
	})
}
