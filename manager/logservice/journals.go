package logservice

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// journals implements Streams on a shelf. Each stream has a journal on the shelf and an
// index in memory.
type journals struct {
	shelf shelf
	now   func() time.Time

	mu      sync.Mutex // guards the following fields and those that journal names; never held over I/O
	streams map[ID]*journal
	size    int64
	created chan struct{} // closed when a stream is created
	closed  bool
}

// journal is one stream.
type journal struct {
	id   ID
	turn chan struct{} // contains one token; its holder may write

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

// NewStreams returns an empty store of streams in memory.
func NewStreams() Streams {
	j, _ := openJournals(newMemory(), time.Now) // an empty shelf in memory cannot fail
	return j
}

// OpenStreams opens a store of streams in a folder. It creates the folder if necessary
// and loads existing streams. It cuts an incomplete frame from the end of a file. Only
// one process may use a folder at the same time.
//
// A change survives the end of the process as soon as the call returns, also after
// SIGKILL. After Sync, it survives the end of the machine.
func OpenStreams(dir string) (Streams, error) {
	return openFolder(dir, time.Now)
}

func openFolder(dir string, now func() time.Time) (*journals, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return openJournals(folder{dir}, now)
}

func openJournals(s shelf, now func() time.Time) (*journals, error) {
	js := &journals{shelf: s, now: now, streams: map[ID]*journal{}, created: make(chan struct{})}
	names, err := s.list()
	if err != nil {
		return nil, fmt.Errorf("looking for streams: %w", err)
	}
	for _, name := range names {
		if err := js.load(name); err != nil {
			return nil, fmt.Errorf("reading the stream %s: %w", name, err)
		}
	}
	return js, nil
}

// nameOf returns a name for the journal of a stream that is valid on every file system,
// for every key.
func nameOf(id ID, run int64) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(id.Account)) + ":" + id.Account + id.Key))
	return hex.EncodeToString(sum[:20]) + "-" + strconv.FormatInt(run, 36)
}

func newJournal(id ID) *journal {
	j := &journal{id: id, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	j.turn <- struct{}{}
	return j
}

// load reads a journal from the shelf.
func (js *journals) load(name string) error {
	f, err := js.shelf.open(name, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 256<<10)
	kind, content, err := readFrame(r)
	var h header
	if err != nil || kind != frameHeader || json.Unmarshal(content, &h) != nil || h.Version != 1 {
		if err == nil && h.Version > 1 {
			return fmt.Errorf("its version is %d, which is newer than this program", h.Version)
		}
		if err == nil || errors.Is(err, errTorn) || errors.Is(err, io.EOF) {
			return js.shelf.remove(name) // the crash interrupted its creation
		}
		return err
	}
	j := newJournal(ID{h.Account, h.Key})
	j.name, j.run, j.open, j.touched = name, h.Run, true, js.shelf.changed(name)
	j.end = frameHead + 1 + int64(len(content))
	for {
		kind, content, err := readFrame(r)
		if err == nil {
			err = j.apply(kind, content)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, errTorn) {
			if err := js.shelf.cut(name, j.end); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return err
		}
	}
	if other := js.streams[j.id]; other != nil {
		// A crash interrupted the removal of the old run after the new run had begun.
		if other.run > j.run {
			return js.shelf.remove(name)
		}
		js.size -= other.end
		if err := js.shelf.remove(other.name); err != nil {
			return err
		}
	}
	js.streams[j.id] = j
	js.size += j.end
	return nil
}

// apply updates the index for a frame at the end of the journal.
func (j *journal) apply(kind byte, content []byte) error {
	switch kind {
	case frameWriter:
		j.known(string(content), 0)
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
		j.known(f.writer, f.next)
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

func (j *journal) known(writer string, next int64) {
	if writer == "" {
		return
	}
	if j.writers == nil {
		j.writers = map[string]int64{}
	}
	j.writers[writer] = next
}

func (j *journal) state() State {
	return State{Open: j.open, Run: j.run, Lines: j.lines, Size: j.end, Archived: j.covered, Touched: j.touched}
}

// change writes the frames that fn returns to the journal of a log. It calls fn with mu
// held. It does not call fn if the log is unknown and create is false.
func (js *journals) change(ctx context.Context, id ID, create bool, fn func(j *journal) ([]byte, error)) error {
	for {
		j, err := js.find(id, create)
		if err != nil {
			return err
		}
		select {
		case <-j.turn:
		case <-ctx.Done():
			return ctx.Err()
		}
		err = js.write(j, fn)
		j.turn <- struct{}{}
		if !errors.Is(err, errRemoved) {
			return err
		}
	}
}

var errRemoved = errors.New("removed while we waited")

// find returns the journal of a log. A new journal is empty and invisible to readers
// until its first frame is written.
func (js *journals) find(id ID, create bool) (*journal, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.closed {
		return nil, ErrClosed
	}
	j := js.streams[id]
	if j == nil || j.name == "" && !create {
		if !create {
			return nil, ErrUnknown
		}
		j = newJournal(id)
		js.streams[id] = j
	}
	return j, nil
}

// write performs change. The caller must have the turn of the journal.
func (js *journals) write(j *journal, fn func(*journal) ([]byte, error)) error {
	js.mu.Lock()
	if j.gone {
		js.mu.Unlock()
		return errRemoved
	}
	frames, err := fn(j)
	name, run, at := j.name, j.run, j.end
	fresh := false
	if err == nil && len(frames) > 0 && frames[frameHead] == frameHeader {
		var h header
		_ = json.Unmarshal(frames[frameHead+1:frameHead+int(binary.LittleEndian.Uint32(frames))], &h) // always decodes: begin encoded it
		name, run, at, fresh = nameOf(j.id, h.Run), h.Run, 0, true
	}
	js.mu.Unlock()
	if err == nil && len(frames) > 0 {
		err = js.shelf.write(name, frames, at)
	}

	js.mu.Lock()
	old := ""
	switch {
	case err != nil || len(frames) == 0:
		js.forgetEmpty(j)
	case js.closed:
		err = ErrClosed
	default:
		if fresh {
			old = j.name
			js.size -= j.end
			if old == "" {
				close(js.created)
				js.created = make(chan struct{})
			}
			*j = journal{id: j.id, turn: j.turn, changed: j.changed, name: name, run: run, open: true}
		} else {
			js.size -= j.end
		}
		err = j.replay(frames)
		js.size += j.end
		j.touched, j.dirty = js.now(), true
		close(j.changed)
		j.changed = make(chan struct{})
	}
	js.mu.Unlock()
	if old != "" {
		err = errors.Join(err, js.shelf.remove(old))
	}
	return err
}

// forgetEmpty removes a journal that a failed call created.
func (js *journals) forgetEmpty(j *journal) {
	if j.name == "" && js.streams[j.id] == j {
		delete(js.streams, j.id)
		j.gone = true
	}
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

// begin returns the first frames of a run.
func (js *journals) begin(j *journal) []byte {
	run := max(js.now().UnixNano(), j.run+1)
	text, _ := json.Marshal(header{Version: 1, Account: j.id.Account, Key: j.id.Key, Run: run}) // always encodes
	return appendFrame(nil, frameHeader, func(b []byte) []byte { return append(b, text...) })
}

func (js *journals) Start(ctx context.Context, id ID, writer string) error {
	return js.change(ctx, id, true, func(j *journal) ([]byte, error) {
		if _, known := j.writers[writer]; j.name != "" && (j.open || known) {
			return nil, nil
		}
		frames := js.begin(j)
		if writer != "" {
			frames = appendFrame(frames, frameWriter, func(b []byte) []byte { return append(b, writer...) })
		}
		return frames, nil
	})
}

func (js *journals) Append(ctx context.Context, id ID, b Batch) error {
	buf := frameBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxKept {
			frameBuffers.Put(buf)
		}
	}()
	return js.change(ctx, id, true, func(j *journal) ([]byte, error) {
		lines := b.Lines
		if b.Writer != "" {
			next := j.writers[b.Writer]
			if b.Next > next {
				return nil, &BehindError{Next: next}
			}
			lines = fresh(lines, next)
		}
		if len(lines) == 0 && len(b.Lines) > 0 {
			return nil, nil // the stream may be complete and must stay complete
		}
		var frames []byte
		if j.name == "" {
			frames = js.begin(j)
		}
		size := 0
		for _, l := range lines {
			size += len(l.Raw) + 1
		}
		*buf = append(slices.Grow((*buf)[:0], len(frames)+size+size/1024+256), frames...)
		*buf = appendLines(*buf, b.Writer, lines)
		frames = *buf
		if j.end+int64(len(frames)) > b.MaxStream {
			return nil, fmt.Errorf("%w of %d bytes", ErrTooLong, b.MaxStream)
		}
		return frames, nil
	})
}

// frameBuffers contains buffers for frames. A shelf does not retain them.
var frameBuffers = sync.Pool{New: func() any { return new([]byte) }}

// fresh returns the lines whose pos is at least next and above the pos of the previous
// lines.
func fresh(lines []Line, next int64) []Line {
	if inOrder(lines, next) {
		return lines
	}
	var out []Line
	for _, l := range lines {
		if l.Pos >= next {
			out = append(out, l)
			next = l.Pos + 1
		}
	}
	return out
}

func inOrder(lines []Line, next int64) bool {
	for _, l := range lines {
		if l.Pos < next {
			return false
		}
		next = l.Pos + 1
	}
	return true
}

func (js *journals) Finish(ctx context.Context, id ID, snapshot bool) error {
	return js.change(ctx, id, false, func(j *journal) ([]byte, error) {
		var frames []byte
		if snapshot && j.covered == Uploaded && j.lines > 0 {
			frames = appendArchived(frames, 0)
		}
		if j.open {
			frames = appendFrame(frames, frameFinish, nil)
		}
		return frames, nil
	})
}

func appendArchived(frames []byte, lines int64) []byte {
	return appendFrame(frames, frameArchived, func(b []byte) []byte { return binary.AppendUvarint(b, uint64(lines)) })
}

func (js *journals) SetArchived(ctx context.Context, id ID, run, lines int64) error {
	err := js.change(ctx, id, false, func(j *journal) ([]byte, error) {
		if j.run != run {
			return nil, nil
		}
		return appendArchived(nil, lines), nil
	})
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	return err
}

// lookUp returns the journal of a log if it is visible to readers. The caller must hold
// mu.
func (js *journals) lookUp(id ID) (*journal, error) {
	if js.closed {
		return nil, ErrClosed
	}
	if j := js.streams[id]; j != nil && j.name != "" {
		return j, nil
	}
	return nil, ErrUnknown
}

func (js *journals) State(_ context.Context, id ID) (State, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.lookUp(id)
	if err != nil {
		return State{}, err
	}
	return j.state(), nil
}

func (js *journals) Read(_ context.Context, id ID, run, from int64) ([]Line, error) {
	js.mu.Lock()
	j, err := js.lookUp(id)
	if err == nil && j.run != run {
		err = ErrUnknown
	}
	if err != nil || from >= j.lines {
		js.mu.Unlock()
		return nil, err
	}
	at := j.marks[search(j.marks, from)]
	name, end := j.name, j.end
	js.mu.Unlock()

	f, err := js.shelf.open(name, at.offset)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnknown // removed since the lookup
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
func readLines(r io.Reader, n, from int64) (out []Line, err error) {
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
				out = append(out, Line{Raw: raw[: len(raw)-1 : len(raw)-1], Pos: n})
				size += len(raw)
			}
			n++
		}
	}
	return out, nil
}

func (js *journals) Watch(id ID) <-chan struct{} {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j, err := js.lookUp(id); err == nil {
		return j.changed
	}
	return js.created
}

func (js *journals) Remove(ctx context.Context, id ID, run int64) error {
	js.mu.Lock()
	j, err := js.lookUp(id)
	js.mu.Unlock()
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-j.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { j.turn <- struct{}{} }()
	js.mu.Lock()
	if js.closed || j.gone || j.run != run {
		js.mu.Unlock()
		return nil
	}
	j.gone, j.open = true, false
	delete(js.streams, id)
	js.size -= j.end
	close(j.changed)
	js.mu.Unlock()
	return js.shelf.remove(j.name)
}

func (js *journals) All(context.Context) iter.Seq2[ID, State] {
	js.mu.Lock()
	all := make(map[ID]State, len(js.streams))
	for id, j := range js.streams {
		if j.name != "" {
			all[id] = j.state()
		}
	}
	js.mu.Unlock()
	return func(yield func(ID, State) bool) {
		for id, s := range all {
			if !yield(id, s) {
				return
			}
		}
	}
}

func (js *journals) Usage() (streams int, size int64) {
	js.mu.Lock()
	defer js.mu.Unlock()
	return len(js.streams), js.size
}

func (js *journals) Sync() error {
	js.mu.Lock()
	var dirty []*journal
	var names []string
	for _, j := range js.streams {
		if j.dirty {
			j.dirty = false
			dirty, names = append(dirty, j), append(names, j.name)
		}
	}
	js.mu.Unlock()
	var errs []error
	for i, name := range names {
		if err := js.shelf.sync(name); err != nil {
			errs = append(errs, err)
			js.mu.Lock()
			dirty[i].dirty = true
			js.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (js *journals) Close() error {
	js.mu.Lock()
	if js.closed {
		js.mu.Unlock()
		return nil
	}
	js.closed = true
	for _, j := range js.streams {
		close(j.changed)
	}
	close(js.created)
	js.mu.Unlock()
	// A write in progress still finishes; the next start loads its frames.
	return errors.Join(js.Sync(), js.shelf.close())
}
