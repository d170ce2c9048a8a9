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
	"github.com/gofrs/flock"
)

// A journal is the ledger's file of one transaction: one entry a line, each
//
//	<version> <CRC-32C of the JSON, 8 hexadecimal digits> <JSON>
//
// An entry is on the disk before what it announces is done; one that matters to
// no later run of the machine is with the kernel. A line that is torn
// or damaged is an entry whose deed had not begun, so it is passed over.
//
// Every version that has been released is read for ever: an upgraded delegate
// cleans up what the one before it left. Members may be added to an entry of the
// same version when an older program can do without them; what it must not
// overlook is a new version. A record with an entry of a newer version is left
// alone.
const (
	journalVersion = 1
	journalSuffix  = ".ledger"
	lockName       = "lock"
	idName         = "id"
)

// lockWait is how long a ledger's lock is waited for: a process that is killed
// while it starts another one leaves the lock to that until it has started.
const lockWait = 2 * time.Second

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is one line of a journal: Open, Resource or Gone.
type entry struct {
	// Open begins a transaction. With Ready its init has ended, and there are
	// notes.
	Open  *driver.Environment `json:"open,omitempty"`
	Ready bool                `json:"ready,omitempty"`
	// Resource is about to be created, on behalf of Task, which is empty for
	// that of an init.
	Resource *driver.Resource `json:"resource,omitempty"`
	Task     string           `json:"task,omitempty"`
	// Gone has been removed.
	Gone *driver.Resource `json:"gone,omitempty"`
}

// ledger is the folder of all journals. One process at a time may have it.
type ledger struct {
	dir string

	mu     sync.Mutex
	lock   *flock.Flock // nil until opened
	id     string       // the folder's own, see [driver.LabelLedger]
	closed bool
}

// open makes the folder and locks it, once.
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
		return fmt.Errorf("%w: making its folder: %w", ErrLedger, err)
	}
	lock := flock.New(filepath.Join(l.dir, lockName))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	switch _, err := lock.TryLockContext(ctx, lockWait/100); {
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: locking its folder %s: %w", ErrLedger, l.dir, err)
	case err != nil:
		return fmt.Errorf("%w: its folder %s is in use by another delegate: give each its own", ErrLedger, l.dir)
	}
	id, err := l.identify()
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrLedger, err), lock.Close())
	}
	l.lock, l.id = lock, id
	return nil
}

// identify reads the folder's id, or gives it one. The caller has the lock.
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
		return "", fmt.Errorf("giving the ledger an id: %w", err)
	}
	return id, nil
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

// path is where a transaction's journal is. An id may be any text.
func (l *ledger) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:16])+journalSuffix)
}

// begin makes the journal of a new transaction, with its first entry.
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
		return nil, fmt.Errorf("making the record of transaction %s: %w", env.ID, err)
	}
	j := &journal{path: path, file: f}
	err = j.append(entry{Open: env}, durable)
	if err == nil {
		err = atomicfile.SyncDir(l.dir) // the file's name must survive too
	}
	if err != nil {
		return nil, errors.Join(err, j.remove())
	}
	return j, nil
}

// leftover is what a journal of an earlier process says.
type leftover struct {
	path      string
	written   time.Time // when the last entry was
	env       driver.Environment
	ready     bool
	resources []driver.Resource
	begun     map[string][]driver.Resource // of resources, by the task they are for
}

// leftovers reads all journals. A journal that cannot be read is an error among
// others and stays where it is.
func (l *ledger) leftovers() ([]leftover, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(l.dir, "*"+journalSuffix))
	if err != nil {
		return nil, err
	}
	var all []leftover
	var problems []error
	for _, path := range paths {
		left, err := readJournal(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // a transaction of this process has ended
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		all = append(all, left)
	}
	return all, errors.Join(problems...)
}

func readJournal(path string) (leftover, error) {
	left := leftover{path: path}
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

// newerError says that a newer program has written into a record.
type newerError struct{ version int }

func (e *newerError) Error() string {
	return fmt.Sprintf("it has version %d and this program knows %d, so it is left alone: start a delegate at least as new as the one "+
		"that wrote it, which cleans up and removes it, or remove by hand what it names and then the file", e.version, journalVersion)
}

// eachEntry calls f for every good line. A line of a newer version is a
// [newerError]: what it says, or its checksum, must not be guessed.
func eachEntry(r io.Reader, f func(entry)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil // what is after the last newline is torn
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
			return fmt.Errorf("an entry with a good checksum cannot be decoded: %w", err)
		}
		f(e)
	}
}

// journal is an open transaction's record. Safe for concurrent use.
type journal struct {
	path string

	mu   sync.Mutex
	file *os.File // nil for a journal that was read back, until it is written
	size int64    // of what is whole; the next entry goes there, over a torn one
}

// reopen continues the journal of an earlier process.
func reopen(path string) *journal { return &journal{path: path} }

// durable makes append wait for the disk.
const durable = true

// append makes an entry durable, or leaves the journal as it was. One that need
// not be durable is with the kernel when append returns, safe from what happens
// to this process, and gets to the disk with the next one that must be.
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
		err = j.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("recording in the ledger: %w", err), j.file.Truncate(j.size))
	}
	j.size += int64(line.Len())
	return nil
}

// opened opens a journal that was read back and ends a torn line. The caller
// holds mu.
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

// remove ends the journal: the transaction is over.
func (j *journal) remove() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		_ = j.file.Close() // its content is void
		j.file = nil
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a transaction's record: %w", err)
	}
	return nil
}

// close lets go of the file and keeps the record.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		_ = j.file.Close() // every entry was synced
		j.file = nil
	}
}
