package agent

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
)

// chunkSize is the size of a piece of output, in bytes.
const chunkSize = 32 << 10

// output stores the output of a step. Readers may come at any time and start at any offset. A
// write never waits for a reader. Above the memory limit the older chunks move to a file.
//
// The file is encrypted: the agent does not know all secrets, and a disk may outlive the agent
// (rule S5).
type output struct {
	dir       string
	maxMemory int
	over      chan struct{} // closed by end

	writing sync.Mutex // held by the writer, for the fields up to mu
	stream  cipher.Block
	buf     []byte
	spilled int // number of chunks in the file
	failed  error

	mu      sync.Mutex
	chunks  [][]byte      // nil for a chunk in the file; all but the last are full; guarded by mu
	file    *os.File      // guarded by mu
	size    int64         // guarded by mu
	lost    int64         // bytes dropped because of an error; guarded by mu
	ended   bool          // no more output comes; guarded by mu
	changed chan struct{} // closed when size or ended changes; nil without a waiting reader; guarded by mu
	readers int           // guarded by mu
	dropped bool          // guarded by mu
}

func newOutput(dir string, maxMemory int) *output {
	return &output{dir: dir, maxMemory: maxMemory, over: make(chan struct{})}
}

// Write implements [io.Writer]. It never fails, so that a storage error does not stop the step.
func (o *output) Write(p []byte) (int, error) {
	o.writing.Lock()
	defer o.writing.Unlock()
	for rest := p; len(rest) > 0; {
		n := o.add(rest)
		rest = rest[n:]
		o.spill()
	}
	return len(p), nil
}

// add appends the beginning of p to the last chunk and returns the number of bytes.
func (o *output) add(p []byte) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended:
		return len(p)
	case o.failed != nil:
		o.lost += int64(len(p))
		return len(p)
	}
	last := len(o.chunks) - 1
	switch {
	case last < 0:
		o.chunks = append(o.chunks, nil) // grows on demand: most steps print little
		last++
	case len(o.chunks[last]) == chunkSize:
		o.chunks = append(o.chunks, make([]byte, 0, chunkSize))
		last++
	}
	p = p[:min(len(p), chunkSize-len(o.chunks[last]))]
	o.chunks[last] = append(o.chunks[last], p...) // readers use the earlier part only
	o.size += int64(len(p))
	o.wakeReaders()
	return len(p)
}

// wakeReaders wakes the readers that wait for more output. The caller holds mu.
func (o *output) wakeReaders() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// spill moves full chunks to the file until memory is below its limit. After a write error all
// further output is dropped, and the step continues.
func (o *output) spill() {
	for o.failed == nil {
		o.mu.Lock()
		full := len(o.chunks) - 1
		var chunk []byte
		if (full-o.spilled)*chunkSize > o.maxMemory {
			chunk = o.chunks[o.spilled]
		}
		f, over := o.file, o.ended
		o.mu.Unlock()
		if chunk == nil || over {
			return
		}
		if err := o.writeChunk(f, chunk); err != nil {
			o.failed = err
			return
		}
		o.mu.Lock()
		o.chunks[o.spilled] = nil
		o.mu.Unlock()
		o.spilled++
	}
}

// writeChunk writes the next chunk to f. It creates the file if f is nil.
func (o *output) writeChunk(f *os.File, chunk []byte) error {
	if f == nil {
		var err error
		if f, err = o.create(); err != nil {
			return err
		}
	}
	if o.buf == nil {
		o.buf = make([]byte, chunkSize)
	}
	o.crypt(o.spilled, o.buf, chunk)
	_, err := f.WriteAt(o.buf, int64(o.spilled)*chunkSize)
	return err
}

func (o *output) create() (*os.File, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // documented to never fail
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(o.dir, "dlite-output-*")
	if err != nil {
		return nil, err
	}
	// A file without a name disappears with the process. On systems where an open file cannot be
	// removed, leave removes it.
	_ = os.Remove(f.Name())
	o.stream = block
	o.mu.Lock()
	o.file = f
	o.mu.Unlock()
	return f, nil
}

// crypt encrypts or decrypts a chunk. Each output has its own key and each chunk is written once,
// so no counter is used twice.
func (o *output) crypt(chunk int, to, from []byte) {
	var iv [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[:8], uint64(chunk)) //nolint:gosec // not negative
	cipher.NewCTR(o.stream, iv[:]).XORKeyStream(to, from)
}

// end marks the end of the output. It appends a note about lost bytes.
func (o *output) end() {
	o.writing.Lock()
	defer o.writing.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	if o.lost > 0 {
		note := fmt.Appendf(nil, "\n(%d bytes of output are lost: the agent cannot store them: %v)\n", o.lost, o.failed)
		last := len(o.chunks) - 1
		if len(o.chunks[last]) == chunkSize {
			o.chunks = append(o.chunks, nil)
			last++
		}
		o.chunks[last] = append(o.chunks[last], note...)
		o.size += int64(len(note))
	}
	o.ended = true
	o.wakeReaders()
	close(o.over)
}

// length returns the number of bytes.
func (o *output) length() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size
}

// drop frees the output when its last reader has gone. The output must have ended.
func (o *output) drop() {
	o.mu.Lock()
	o.dropped = true
	o.mu.Unlock()
	o.leave(0)
}

// leave removes n readers, and frees a dropped output that has no readers.
func (o *output) leave(n int) {
	o.mu.Lock()
	o.readers -= n
	var f *os.File
	if o.dropped && o.readers == 0 {
		f, o.file, o.chunks = o.file, nil, nil
	}
	o.mu.Unlock()
	if f != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}

// copyTo writes the output from offset on, and follows it until the output ends, ctx ends or w
// fails. Each write is at most one chunk. copyTo waits for an offset beyond the current end.
func (o *output) copyTo(ctx context.Context, w io.Writer, offset int64) error {
	o.mu.Lock()
	if o.dropped {
		o.mu.Unlock()
		return nil
	}
	o.readers++
	o.mu.Unlock()
	defer o.leave(1)
	buf := make([]byte, 0, chunkSize)
	for {
		piece, more, err := o.at(offset, buf)
		switch {
		case err != nil:
			return err
		case len(piece) > 0:
			n, err := w.Write(piece)
			offset += int64(n)
			if err != nil {
				return err
			}
		case more == nil:
			return nil
		default:
			select {
			case <-more:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// at returns output from offset on. If there is none yet, more is closed when that may have
// changed; at the end more is nil.
func (o *output) at(offset int64, buf []byte) (piece []byte, more <-chan struct{}, err error) {
	o.mu.Lock()
	if offset >= o.size {
		defer o.mu.Unlock()
		if o.ended {
			return nil, nil, nil
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		return nil, o.changed, nil
	}
	i := min(int(offset/chunkSize), len(o.chunks)-1) // the last chunk may be longer because of a note
	from := offset - int64(i)*chunkSize
	if chunk := o.chunks[i]; chunk != nil {
		o.mu.Unlock()
		return chunk[from:], nil, nil
	}
	f := o.file
	o.mu.Unlock()
	buf = buf[:chunkSize]
	if _, err := f.ReadAt(buf, int64(i)*chunkSize); err != nil {
		return nil, nil, fmt.Errorf("read the output: %w", err)
	}
	o.crypt(i, buf, buf)
	return buf[from:], nil, nil
}
