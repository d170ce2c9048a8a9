package logservice

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// A journal is a sequence of frames. A frame consists of:
//
//	4 bytes  length of the content, little endian
//	4 bytes  CRC-32C of the content
//	content  one byte for the kind of the frame, and its data
//
// If a crash interrupts the write of a frame, its length or checksum is wrong. The
// journal ends before such a frame.
const (
	frameHead = 8
	// maxFrame bounds the content of a frame, so that a corrupt length allocates no
	// memory.
	maxFrame = 64 << 20
	// linesPerFrame is the approximate size of the lines in one frame, in bytes. A
	// reader gets about as many bytes in one read.
	linesPerFrame = 256 << 10
)

// Kinds of frames, with their data.
const (
	frameHeader   = 'h' // JSON of header
	frameWriter   = 'w' // the name of a writer that opened the stream
	frameLines    = 'l' // see appendLines
	frameFinish   = 'f' // no data
	frameArchived = 'a' // uvarint of State.Archived
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errTorn    = errors.New("the journal is torn")
)

// appendFrame appends a frame. fill appends its data.
func appendFrame(dst []byte, kind byte, fill func([]byte) []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, frameHead)...)
	dst = append(dst, kind)
	if fill != nil {
		dst = fill(dst)
	}
	content := dst[start+frameHead:]
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(content)))
	binary.LittleEndian.PutUint32(dst[start+4:], crc32.Checksum(content, castagnoli))
	return dst
}

// appendLines appends frames of lines. The data of each frame is the length of the
// writer's name, the name, the pos after the last line, the number of lines, and the
// lines, each with a newline.
func appendLines(dst []byte, writer string, lines []livelog.Line) []byte {
	for len(lines) > 0 {
		n, size := 0, 0
		for n < len(lines) && size < linesPerFrame {
			size += len(lines[n].Raw) + 1
			n++
		}
		dst = appendFrame(dst, frameLines, func(dst []byte) []byte {
			dst = binary.AppendUvarint(dst, uint64(len(writer)))
			dst = append(dst, writer...)
			dst = binary.AppendVarint(dst, lines[n-1].Pos+1)
			dst = binary.AppendUvarint(dst, uint64(n))
			for _, l := range lines[:n] {
				dst = append(append(dst, l.Raw...), '\n')
			}
			return dst
		})
		lines = lines[n:]
	}
	return dst
}

// linesFrame is the decoded data of a frame of lines.
type linesFrame struct {
	writer string
	next   int64
	count  int64
	text   []byte // newline-delimited
}

func parseLines(b []byte) (f linesFrame, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return f, errTorn
	}
	f.writer, b = string(b[w:w+int(n)]), b[w+int(n):]
	if f.next, w = binary.Varint(b); w <= 0 {
		return f, errTorn
	}
	b = b[w:]
	n, w = binary.Uvarint(b)
	if w <= 0 {
		return f, errTorn
	}
	f.count, f.text = int64(n), b[w:]
	if int64(bytes.Count(f.text, []byte("\n"))) != f.count || !bytes.HasSuffix(f.text, []byte("\n")) {
		return f, errTorn
	}
	return f, nil
}

// readFrame reads the next frame. At the end it fails with io.EOF. If the frame is
// incomplete or corrupt, it fails with errTorn.
func readFrame(r *bufio.Reader) (kind byte, content []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, torn(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxFrame {
		return 0, nil, errTorn
	}
	// CopyN bounds the allocation to the available bytes, even if the length is
	// corrupt.
	var b bytes.Buffer
	if n <= 2*linesPerFrame {
		b.Grow(int(n))
	}
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, torn(err)
	}
	content = b.Bytes()
	if crc32.Checksum(content, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, nil, errTorn
	}
	return content[0], content[1:], nil
}

func torn(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}
