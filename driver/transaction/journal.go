package transaction

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/atomicfile"
	"github.com/delegate-io/dlite/internal/sealed"
	"github.com/gofrs/flock"
)

// A journal is the ledger's file of one transaction: one entry a line, each
//
//	<version> <CRC-32C of the JSON, 8 hexadecimal digits> <JSON>
//
// An entry is on the disk before the action that it announces begins. An entry that
// does not matter after a restart of the machine is only in the kernel. A torn or
// damaged line is an entry whose action had not begun, so it is skipped.
//
// All released versions can be read: an upgraded delegate cleans up the resources of
// the previous one. New members may be added to entries of the same version if older
// programs can ignore them. Otherwise the version changes. A record with an entry of a
// newer version is left as it is.
const (
	journalVersion = 1
	journalSuffix  = ".ledger"
	lockName       = "lock"
	idName         = "id"
	keyName        = "notes.key" // of the notes
)

// lockWait is how long open waits for the lock. A process that is killed while it
// starts another one leaves the lock to the other one until that has started.
const lockWait = 2 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is one line of a journal. It has one of Open, Resource and Gone.
type entry struct {
	// Open begins a transaction. With Ready its init has ended, and notes exist.
	Open  *driver.Environment `json:"open,omitempty"`
	Ready bool                `json:"ready,omitempty"`
	// Resource is about to be created for Task, which is empty for an init.
	Resource *driver.Resource `json:"resource,omitempty"`
	Task     string           `json:"task,omitempty"`
	// Gone is a resource that has been removed.
	Gone *driver.Resource `json:"gone,omitempty"`
}

// ledger is the directory of all journals. Only one process at a time can use it.
type ledger struct {
	dir string

	mu     sync.Mutex
	lock   *flock.Flock  // nil until opened
	id     string        // the id of the directory, see [driver.LabelLedger]
	notes  sealed.Cipher // empty until it is needed
	closed bool
}

// open creates the directory and locks it, once.
func (l *ledger) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock != nil {
		return nil
	}
	if l.closed {
		return fmt.Errorf("%w: it has been closed", ErrLedger)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("%w: creating its directory: %w", ErrLedger, err)
	}
	lock := flock.New(filepath.Join(l.dir, lockName))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	switch _, err := lock.TryLockContext(ctx, lockWait/100); {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: locking its directory %s: %w", ErrLedger, l.dir, err)
	case err != nil:
		return fmt.Errorf("%w: its directory %s is in use by another delegate: give each delegate its own", ErrLedger, l.dir)
	}
	id, err := l.identify()
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrLedger, err), lock.Close())
	}
	l.lock, l.id = lock, id
	return nil
}

// identify returns the id of the directory, and creates it if it is missing. The
// caller holds the lock.
func (l *ledger) identify() (string, error) {
	path := filepath.Join(l.dir, idName)
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("reading the ledger's id: %w", err)
	}
	id := rand.Text()
	if err := atomicfile.WriteFile(path, []byte(id)); err != nil {
		return "", fmt.Errorf("writing the ledger's id: %w", err)
	}
	return id, nil
}

// noteCipher returns the cipher of the notes. The ledger must be open.
func (l *ledger) noteCipher() (sealed.Cipher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes.HasKey() {
		return l.notes, nil
	}
	c, err := sealed.Open(filepath.Join(l.dir, keyName))
	if err != nil {
		return sealed.Cipher{}, fmt.Errorf("the key of the notes: %w", err)
	}
	l.notes = c
	return c, nil
}

func (l *ledger) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.lock == nil {
		return nil
	}
	err := l.lock.Close()
	l.lock = nil
	return err
}

// path returns the path of a transaction's journal. An id may be any text.
func (l *ledger) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:16])+journalSuffix)
}

// begin creates the journal of a new transaction, with its first entry.
func (l *ledger) begin(env *driver.Environment) (*journal, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	if env.Labels == nil {
		env.Labels = map[string]string{}
	}
	env.Labels[driver.LabelLedger] = l.id
	path := l.path(env.ID)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the record of transaction %s: %w", env.ID, err)
	}
	j := &journal{path: path, file: f}
	// Nothing exists yet: the entry reaches the disk with the entry of the first resource.
	if err := j.append(entry{Open: env}, !durable); err != nil {
		return nil, errors.Join(err, j.remove())
	}
	return j, nil
}

// openRecord is the content of a journal of an earlier process.
type openRecord struct {
	path      string
	written   time.Time // time of the last entry
	env       driver.Environment
	ready     bool
	resources []driver.Resource
	begun     map[string][]driver.Resource // resources by the task for which they were created
}

// openRecords reads all journals. A journal that cannot be read stays where it is
// and is one of the errors.
func (l *ledger) openRecords() ([]openRecord, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(l.dir, "*"+journalSuffix))
	if err != nil {
		return nil, err
	}
	var all []openRecord
	var problems []error
	for _, path := range paths {
		left, err := readJournal(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a transaction of this process has ended meanwhile
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		all = append(all, left)
	}
	return all, errors.Join(problems...)
}

func readJournal(path string) (openRecord, error) {
	left := openRecord{path: path}
	f, err := os.Open(path)
	if err != nil {
		return left, fmt.Errorf("reading a transaction's record: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return left, fmt.Errorf("reading a transaction's record: %w", err)
	}
	left.written = info.ModTime()
	type key struct{ kind, id string }
	index := map[key]int{}
	tasks := map[key]string{}
	err = eachEntry(f, func(e entry) {
		switch {
		case e.Open != nil:
			left.env, left.ready = *e.Open, e.Ready
		case e.Resource != nil:
			k := key{e.Resource.Kind, e.Resource.ID}
			tasks[k] = e.Task
			if i, ok := index[k]; ok {
				left.resources[i] = *e.Resource
				return
			}
			index[k] = len(left.resources)
			left.resources = append(left.resources, *e.Resource)
		case e.Gone != nil:
			k := key{e.Gone.Kind, e.Gone.ID}
			if i, ok := index[k]; ok {
				left.resources[i].Kind = "" // filtered below
				delete(index, k)
			}
		}
	})
	left.resources = slices.DeleteFunc(left.resources, func(r driver.Resource) bool { return r.Kind == "" })
	left.begun = map[string][]driver.Resource{}
	for _, r := range left.resources {
		if t := tasks[key{r.Kind, r.ID}]; t != "" {
			left.begun[t] = append(left.begun[t], r)
		}
	}
	if err != nil {
		return left, fmt.Errorf("reading %s: %w", path, err)
	}
	return left, nil
}

// newerError: a newer program has written to a record.
type newerError struct{ version int }

func (e *newerError) Error() string {
	return fmt.Sprintf("it has version %d and this program knows %d, so it is not changed: start a delegate at least as new as the one "+
		"that wrote it, which cleans up and removes it; or remove the resources that it names, and then the file", e.version, journalVersion)
}

// eachEntry calls f for every valid line. A line of a newer version is a
// [newerError]: its meaning is unknown.
func eachEntry(r io.Reader, f func(entry)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil // text after the last newline is torn
			}
			return err
		}
		version, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		v, err := strconv.Atoi(version)
		if err != nil || v < 1 {
			continue
		}
		if v > journalVersion {
			return &newerError{version: v}
		}
		sum, text, ok := strings.Cut(rest, " ")
		if !ok || fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) != sum {
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return fmt.Errorf("an entry with a good checksum cannot be decodePayload: %w", err)
		}
		f(e)
	}
}

// journal is the record of an open transaction. Safe for concurrent use.
type journal struct {
	path string

	mu    sync.Mutex
	file  *os.File // nil for a continued journal until the first append
	size  int64    // end of the last complete entry; the next one goes there
	named bool     // the name of the file is on the disk
}

// reopen continues the journal of an earlier process.
func reopen(path string) *journal { return &journal{path: path} }

// durable makes append wait for the disk.
const durable = true

// append adds an entry, or leaves the journal as it was. An entry that need not be
// durable is in the kernel when append returns: it survives the death of this
// process, and reaches the disk with the next durable entry.
func (j *journal) append(e entry, durable bool) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	var line bytes.Buffer
	fmt.Fprintf(&line, "%d %08x %s\n", journalVersion, crc32.Checksum(b, castagnoli), b)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.opened(); err != nil {
		return err
	}
	_, err = j.file.WriteAt(line.Bytes(), j.size)
	if err == nil && durable {
		err = j.sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("recording in the ledger: %w", err), j.file.Truncate(j.size))
	}
	j.size += int64(line.Len())
	return nil
}

// sync waits until the entries, and the name of the file, are on the disk. The caller holds mu.
func (j *journal) sync() error {
	if err := j.file.Sync(); err != nil || j.named {
		return err
	}
	err := atomicfile.SyncDir(filepath.Dir(j.path))
	j.named = err == nil
	return err
}

// opened opens the file of a continued journal and removes a torn last line. The
// caller holds mu.
func (j *journal) opened() error {
	if j.file != nil {
		return nil
	}
	f, err := os.OpenFile(j.path, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening a transaction's record: %w", err)
	}
	b, err := io.ReadAll(f)
	if err == nil {
		j.size = int64(bytes.LastIndexByte(b, '\n') + 1)
		err = f.Truncate(j.size)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening a transaction's record: %w", err), f.Close())
	}
	j.file = f
	return nil
}

// remove removes the journal: the transaction has ended.
func (j *journal) remove() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		_ = j.file.Close() // its content is not needed
		j.file = nil
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a transaction's record: %w", err)
	}
	return nil
}

// close closes the file and keeps the record.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		_ = j.file.Close() // durable entries were synced
		j.file = nil
	}
}
