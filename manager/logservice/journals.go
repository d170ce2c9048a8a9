package logservice

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

// journals implements Streams on a storage. Each stream has a journal on the storage and an
// index in memory.
type journals struct {
	storage storage
	now     func() time.Time

	mu      sync.Mutex // guards the following fields and those that journal names; never held over I/O
	streams map[livelog.ID]*journal
	all     livelog.Usage
	owned   map[string]*owned // by account
	created chan struct{}     // closed when a stream is created
	closed  bool
}

// newStreams returns an empty store of streams in memory.
func newStreams() livelog.Streams {
	j, _ := openJournals(newMemory(), time.Now) // an empty storage in memory cannot fail
	return j
}

// openStreams opens a store of streams in a folder. It creates the folder if necessary
// and loads existing streams. It cuts an incomplete frame from the end of a file. Only
// one process may use a folder at the same time.
//
// A change survives the end of the process as soon as the call returns, also after
// SIGKILL. After Sync, it survives the end of the machine.
func openStreams(dir string) (livelog.Streams, error) {
	return openFolder(dir, time.Now)
}

func openFolder(dir string, now func() time.Time) (*journals, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return openJournals(folder{dir}, now)
}

func openJournals(s storage, now func() time.Time) (*journals, error) {
	js := &journals{storage: s, now: now, streams: map[livelog.ID]*journal{}, owned: map[string]*owned{}, created: make(chan struct{})}
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
func nameOf(id livelog.ID, run int64) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(id.Account)) + ":" + id.Account + id.Key))
	return hex.EncodeToString(sum[:20]) + "-" + strconv.FormatInt(run, 36)
}

// load reads a journal from the storage.
func (js *journals) load(name string) error {
	f, err := js.storage.open(name, 0)
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
			return js.storage.remove(name) // the crash interrupted its creation
		}
		return err
	}
	j := newJournal(livelog.ID{Account: h.Account, Key: h.Key})
	j.name, j.run, j.open, j.touched = name, h.Run, true, js.storage.changed(name)
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
			if err := js.storage.cut(name, j.end); err != nil {
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
			return js.storage.remove(name)
		}
		js.resize(other, -other.end)
		js.drop(other)
		if err := js.storage.remove(other.name); err != nil {
			return err
		}
	}
	js.add(j)
	js.resize(j, j.end)
	return nil
}

// change writes the frames that fn returns to the journal of a log. It calls fn with mu
// held. It does not call fn if the log is unknown and create is false.
func (js *journals) change(ctx context.Context, id livelog.ID, create bool, fn func(j *journal) ([]byte, error)) error {
	for {
		j, err := js.find(id, create)
		if err != nil {
			return err
		}
		select {
		case <-j.writing:
		case <-ctx.Done():
			return ctx.Err()
		}
		err = js.write(j, fn)
		j.writing <- struct{}{}
		if !errors.Is(err, errRemoved) {
			return err
		}
	}
}

var errRemoved = errors.New("the stream was removed during the wait")

// find returns the journal of a log. A new journal is empty and invisible to readers
// until its first frame is written.
func (js *journals) find(id livelog.ID, create bool) (*journal, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.closed {
		return nil, livelog.ErrClosed
	}
	j := js.streams[id]
	if j == nil || j.name == "" && !create {
		if !create {
			return nil, livelog.ErrUnknown
		}
		j = newJournal(id)
		js.add(j)
	}
	return j, nil
}

// write performs change. The caller must hold the writing token of the journal.
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
		err = js.storage.write(name, frames, at)
	}

	js.mu.Lock()
	old := ""
	switch {
	case err != nil || len(frames) == 0:
		js.forgetEmpty(j)
	case js.closed:
		err = livelog.ErrClosed
	default:
		js.resize(j, -j.end)
		if fresh {
			old = j.name
			if old == "" {
				close(js.created)
				js.created = make(chan struct{})
			}
			*j = journal{id: j.id, writing: j.writing, changed: j.changed, name: name, run: run, open: true}
		}
		err = j.replay(frames)
		js.resize(j, j.end)
		j.touched, j.dirty = js.now(), true
		close(j.changed)
		j.changed = make(chan struct{})
	}
	js.mu.Unlock()
	if old != "" {
		err = errors.Join(err, js.storage.remove(old))
	}
	return err
}

// forgetEmpty removes a journal that a failed call created.
func (js *journals) forgetEmpty(j *journal) {
	if j.name == "" && js.streams[j.id] == j {
		js.drop(j)
		j.gone = true
	}
}

// begin returns the first frames of a run.
func (js *journals) begin(j *journal) []byte {
	run := max(js.now().UnixNano(), j.run+1)
	text, _ := json.Marshal(header{Version: 1, Account: j.id.Account, Key: j.id.Key, Run: run}) // always encodes
	return appendFrame(nil, frameHeader, func(b []byte) []byte { return append(b, text...) })
}

func (js *journals) Start(ctx context.Context, id livelog.ID, writer string) error {
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

func (js *journals) Append(ctx context.Context, id livelog.ID, b livelog.Batch) error {
	buf := frameBuffers.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxKept {
			frameBuffers.Put(buf)
		}
	}()
	return js.change(ctx, id, true, func(j *journal) ([]byte, error) {
		lines := b.Lines
		if b.Writer != "" {
			next, known := j.writers[b.Writer]
			if !known && len(j.writers) >= maxWriters {
				return nil, fmt.Errorf("%w of %d writers", livelog.ErrTooLong, maxWriters)
			}
			if b.Next > next {
				return nil, &livelog.BehindError{Next: next}
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
			return nil, fmt.Errorf("%w of %d bytes", livelog.ErrTooLong, b.MaxStream)
		}
		return frames, nil
	})
}

// frameBuffers contains buffers for frames. A storage does not retain them.
var frameBuffers = sync.Pool{New: func() any { return new([]byte) }}

// fresh returns the lines whose pos is at least next and above the pos of the previous
// lines.
func fresh(lines []livelog.Line, next int64) []livelog.Line {
	if inOrder(lines, next) {
		return lines
	}
	var out []livelog.Line
	for _, l := range lines {
		if l.Pos >= next {
			out = append(out, l)
			next = l.Pos + 1
		}
	}
	return out
}

func inOrder(lines []livelog.Line, next int64) bool {
	for _, l := range lines {
		if l.Pos < next {
			return false
		}
		next = l.Pos + 1
	}
	return true
}

func (js *journals) Finish(ctx context.Context, id livelog.ID, snapshot bool) error {
	return js.change(ctx, id, false, func(j *journal) ([]byte, error) {
		var frames []byte
		if snapshot && j.covered == livelog.Uploaded && j.lines > 0 {
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

func (js *journals) SetArchived(ctx context.Context, id livelog.ID, run, lines int64) error {
	err := js.change(ctx, id, false, func(j *journal) ([]byte, error) {
		if j.run != run {
			return nil, nil
		}
		return appendArchived(nil, lines), nil
	})
	if errors.Is(err, livelog.ErrUnknown) {
		return nil
	}
	return err
}

// lookUp returns the journal of a log if it is visible to readers. The caller must hold
// mu.
func (js *journals) lookUp(id livelog.ID) (*journal, error) {
	if js.closed {
		return nil, livelog.ErrClosed
	}
	if j := js.streams[id]; j != nil && j.name != "" {
		return j, nil
	}
	return nil, livelog.ErrUnknown
}

func (js *journals) State(_ context.Context, id livelog.ID) (livelog.State, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, err := js.lookUp(id)
	if err != nil {
		return livelog.State{}, err
	}
	return j.state(), nil
}

func (js *journals) Watch(id livelog.ID) <-chan struct{} {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j, err := js.lookUp(id); err == nil {
		return j.changed
	}
	return js.created
}

func (js *journals) Remove(ctx context.Context, id livelog.ID, run int64) error {
	js.mu.Lock()
	j, err := js.lookUp(id)
	js.mu.Unlock()
	if errors.Is(err, livelog.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case <-j.writing:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { j.writing <- struct{}{} }()
	js.mu.Lock()
	if js.closed || j.gone || j.run != run {
		js.mu.Unlock()
		return nil
	}
	j.gone, j.open = true, false
	js.resize(j, -j.end)
	js.drop(j)
	close(j.changed)
	js.mu.Unlock()
	return js.storage.remove(j.name)
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
		if err := js.storage.sync(name); err != nil {
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
	return errors.Join(js.Sync(), js.storage.close())
}
