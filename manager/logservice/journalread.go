package logservice

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

func (js *journals) Read(_ context.Context, id livelog.ID, run, from int64) ([]livelog.Line, error) {
	js.mu.Lock()
	j, err := js.lookUp(id)
	if err == nil && j.run != run {
		err = livelog.ErrUnknown
	}
	if err != nil || from >= j.lines {
		js.mu.Unlock()
		return nil, err
	}
	at := j.marks[search(j.marks, from)]
	name, end := j.name, j.end
	js.mu.Unlock()

	f, err := js.storage.open(name, at.offset)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, livelog.ErrUnknown // removed since the lookup
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// Bytes after end may belong to an incomplete write.
	return readLines(io.LimitReader(f, end-at.offset), at.line, from)
}

// search returns the index of the last mark that is not after line.
func search(marks []mark, line int64) int {
	lo, hi := 0, len(marks)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; marks[mid].line <= line {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// readLines returns lines of frames, beginning with number from. n is the number of the
// first line of the first frame.
func readLines(r io.Reader, n, from int64) (out []livelog.Line, err error) {
	br := bufio.NewReaderSize(r, markEvery)
	for size := 0; size < linesPerFrame; {
		kind, content, err := readFrame(br)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if kind != frameLines {
			continue
		}
		f, err := parseLines(content)
		if err != nil {
			return nil, err
		}
		if n+f.count <= from {
			n += f.count
			continue
		}
		for raw := range bytes.Lines(f.text) {
			if n >= from {
				out = append(out, livelog.Line{Raw: raw[: len(raw)-1 : len(raw)-1], Pos: n})
				size += len(raw)
			}
			n++
		}
	}
	return out, nil
}
