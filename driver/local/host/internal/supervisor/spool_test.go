package supervisor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readAll reads the output of a spool that has ended.
func readAll(s *spool, at int64) string {
	var all bytes.Buffer
	buf := make([]byte, 0, 1000)
	for {
		out, wait, ended := s.next(at, buf)
		if ended {
			return all.String()
		}
		if wait != nil {
			<-wait
		}
		all.Write(out)
		at += int64(len(out))
		s.advance(at)
	}
}

// Rule T5: each driver that comes reads the output from the beginning.
func TestASpoolIsReadFromTheBeginning(t *testing.T) {
	t.Parallel()
	s := newSpool()
	_, _ = s.Write([]byte("one\ntwo\n"))
	s.close()
	for range 2 {
		at, dropped := s.begin()
		require.Zero(t, dropped)
		require.Equal(t, "one\ntwo\n", readAll(s, at))
		s.leave()
	}
}

// The numbers of lines do not change when the oldest lines are dropped, and a step without a reader does
// not wait.
func TestASpoolCountsTheLinesThatItDrops(t *testing.T) {
	t.Parallel()
	s := newSpool()
	line := []byte(strings.Repeat("x", 1023) + "\n")
	const lines = 3 * spoolLimit / 1024
	for range lines {
		_, _ = s.Write(line)
	}
	s.close()
	require.LessOrEqual(t, s.size(), spoolLimit)
	at, dropped := s.begin()
	require.Positive(t, dropped)
	rest := readAll(s, at)
	require.Equal(t, lines, dropped+strings.Count(rest, "\n"))
	require.True(t, strings.HasPrefix(rest, string(line)), "it begins with a whole line")
}

// A step that prints faster than its reader reads waits, and loses nothing.
func TestASpoolWaitsForItsReader(t *testing.T) {
	t.Parallel()
	s := newSpool()
	at, _ := s.begin()
	const chunks = 3 * spoolLimit / (32 << 10)
	go func() {
		for range chunks {
			_, _ = s.Write(bytes.Repeat([]byte("x"), 32<<10))
		}
		s.close()
	}()
	require.Len(t, readAll(s, at), chunks*(32<<10))
}
