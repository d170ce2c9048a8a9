package logservice

import (
	"encoding/binary"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// journal is one stream.
type journal struct {
	id      livelog.ID
	writing chan struct{} // contains one token; its holder may write

	// The following fields are guarded by the mu of journals.
	name    string // empty until the first frame is written
	run     int64
	open    bool
	lines   int64
	end     int64 // size of the journal
	marks   []mark
	writers map[string]int64 // the lowest pos of the next line, by writer
	covered int64            // State.Archived
	touched time.Time
	dirty   bool          // not synced yet
	gone    bool          // removed
	changed chan struct{} // closed at the next change
}

// mark is the position at which a frame of lines begins.
type mark struct{ line, offset int64 }

// markEvery is the minimum distance between marks, in bytes.
const markEvery = 64 << 10

// header is the first frame of a journal.
type header struct {
	Version int    `json:"v"`
	Account string `json:"account"`
	Key     string `json:"key"`
	Run     int64  `json:"run"`
}

func newJournal(id livelog.ID) *journal {
	j := &journal{id: id, writing: make(chan struct{}, 1), changed: make(chan struct{})}
	j.writing <- struct{}{}
	return j
}

// apply updates the index for a frame at the end of the journal.
func (j *journal) apply(kind byte, content []byte) error {
	switch kind {
	case frameWriter:
		j.recordWriter(string(content), 0)
	case frameLines:
		f, err := parseLines(content)
		if err != nil {
			return err
		}
		if n := len(j.marks); n == 0 || j.end-j.marks[n-1].offset >= markEvery {
			j.marks = append(j.marks, mark{line: j.lines, offset: j.end})
		}
		j.lines += f.count
		j.open = true
		j.recordWriter(f.writer, f.next)
	case frameFinish:
		j.open = false
	case frameArchived:
		n, w := binary.Uvarint(content)
		if w <= 0 {
			return errTorn
		}
		j.covered = int64(n)
	}
	j.end += frameHead + 1 + int64(len(content))
	return nil
}

func (j *journal) recordWriter(writer string, next int64) {
	if writer == "" {
		return
	}
	if j.writers == nil {
		j.writers = map[string]int64{}
	}
	j.writers[writer] = next
}

func (j *journal) state() livelog.State {
	return livelog.State{Open: j.open, Run: j.run, Lines: j.lines, Size: j.end, Archived: j.covered, Touched: j.touched}
}

// replay applies frames that were just written.
func (j *journal) replay(frames []byte) error {
	for len(frames) > 0 {
		n := int(binary.LittleEndian.Uint32(frames))
		content := frames[frameHead : frameHead+n]
		if err := j.apply(content[0], content[1:]); err != nil {
			return err
		}
		frames = frames[frameHead+n:]
	}
	return nil
}
