package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// text reads all of o from offset.
func text(t *testing.T, o *output, offset int64) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, o.copyTo(t.Context(), &b, offset))
	return b.String()
}

// Rule L2: a reader that starts at any time and at any offset gets all bytes that follow.
func TestReadersGetEveryByteWhereverTheyStart(t *testing.T) {
	t.Parallel()
	o := newOutput(t.TempDir(), 2*chunkSize)
	want := make([]byte, 20*chunkSize+123)
	_, _ = rand.Read(want)
	var readers sync.WaitGroup
	for range 8 {
		offset := mrand.Int64N(int64(len(want)))
		readers.Go(func() {
			var b bytes.Buffer
			assert.NoError(t, o.copyTo(t.Context(), &b, offset))
			assert.True(t, bytes.Equal(want[offset:], b.Bytes()), "from %d", offset)
		})
	}
	for rest := want; len(rest) > 0; {
		n := min(1+mrand.IntN(3*chunkSize), len(rest))
		wrote, err := o.Write(rest[:n])
		require.NoError(t, err)
		require.Equal(t, n, wrote)
		rest = rest[n:]
	}
	o.end()
	readers.Wait()
	for _, offset := range []int64{0, 1, chunkSize - 1, chunkSize, 7*chunkSize + 5, int64(len(want)) - 1} {
		require.Equal(t, string(want[offset:]), text(t, o, offset))
	}
	assert.Empty(t, text(t, o, int64(len(want))))
	assert.Empty(t, text(t, o, int64(len(want))+5))
	o.drop()
}

// Rule S5: output that exceeds the memory is encrypted on the disk, in a file without a name.
func TestOutputBeyondMemoryIsEncryptedAndHasNoName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := newOutput(dir, 0)
	line := "hunter2-in-the-output\n"
	_, _ = o.Write([]byte(strings.Repeat(line, 10_000)))
	require.NotNil(t, o.file)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	onDisk := make([]byte, chunkSize)
	for i := range o.spilled {
		_, err := o.file.ReadAt(onDisk, int64(i)*chunkSize)
		require.NoError(t, err)
		require.NotContains(t, string(onDisk), "hunter2")
		require.NotEqual(t, bytes.Repeat(onDisk[:1], 64), onDisk[:64])
	}
	require.Greater(t, o.spilled, 3)
	o.end()
	assert.Equal(t, strings.Repeat(line, 10_000), text(t, o, 0))
	o.drop()
	assert.Nil(t, o.file)
}

// Rule L2: the memory for output is limited.
func TestOutputKeepsLittleInMemory(t *testing.T) {
	t.Parallel()
	o := newOutput(t.TempDir(), 4*chunkSize)
	for range 200 {
		_, _ = o.Write(make([]byte, chunkSize))
	}
	held := 0
	for _, c := range o.chunks {
		held += len(c)
	}
	assert.LessOrEqual(t, held, 5*chunkSize)
	o.end()
	o.drop()
}

// A step continues if its output cannot be stored, and readers get a note.
func TestOutputThatCannotBeStoredIsCountedAndReported(t *testing.T) {
	t.Parallel()
	o := newOutput(filepath.Join(t.TempDir(), "no", "such", "folder"), chunkSize)
	for range 10 {
		n, err := o.Write(bytes.Repeat([]byte("x"), chunkSize))
		require.NoError(t, err)
		require.Equal(t, chunkSize, n)
	}
	o.end()
	got := text(t, o, 0)
	kept, note, _ := strings.Cut(got, "\n(")
	assert.GreaterOrEqual(t, len(kept), 2*chunkSize)
	assert.Equal(t, strings.Repeat("x", len(kept)), kept)
	assert.Contains(t, note, fmt.Sprintf("%d bytes of output are lost", 10*chunkSize-len(kept)))
	assert.Equal(t, got[len(got)-10:], text(t, o, o.length()-10), "the note is part of the output")
	o.drop()
}

func TestOutputIsFreedAfterItsLastReader(t *testing.T) {
	t.Parallel()
	o := newOutput(t.TempDir(), 0)
	_, _ = o.Write(make([]byte, 3*chunkSize))
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- o.copyTo(t.Context(), pw, 0) }()
	_, err := io.ReadFull(pr, make([]byte, 10)) // the reader has started
	require.NoError(t, err)
	o.end()
	o.drop()
	require.NotNil(t, o.file)
	_, err = io.ReadFull(pr, make([]byte, 3*chunkSize-10))
	require.NoError(t, err)
	require.NoError(t, <-done)
	assert.Nil(t, o.file)
	assert.Empty(t, text(t, o, 0), "a reader that comes later gets nothing")
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	o := newOutput(t.TempDir(), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, o.copyTo(ctx, io.Discard, 0), context.Canceled)
	o.end()
	o.drop()
}

// FuzzOutput checks that any sequence of writes is read back from any offset.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("hello"), 3, uint16(7), int64(2))
	f.Add(bytes.Repeat([]byte("x"), 100), 2000, uint16(333), int64(70_000))
	f.Fuzz(func(t *testing.T, piece []byte, times int, memory uint16, offset int64) {
		if times < 0 || times > 3000 || len(piece) > 1<<12 || offset < 0 {
			return // more writes would only take time
		}
		o := newOutput(t.TempDir(), int(memory))
		for range times {
			_, _ = o.Write(piece)
		}
		o.end()
		want := bytes.Repeat(piece, times)
		require.Equal(t, int64(len(want)), o.length())
		require.Equal(t, string(want[min(int(min(offset, 1<<40)), len(want)):]), text(t, o, offset))
		o.drop()
	})
}
