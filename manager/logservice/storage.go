package logservice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// storage stores journals: in a folder or in memory.
type storage interface {
	// list returns the names of all journals.
	list() ([]string, error)
	// write writes p at an offset, which is the end of the journal. It creates the
	// journal if necessary. It writes all bytes or none.
	write(name string, p []byte, at int64) error
	// open reads a journal from an offset to its end.
	open(name string, at int64) (io.ReadCloser, error)
	// cut truncates a journal.
	cut(name string, size int64) error
	// changed returns the time of the last write.
	changed(name string) time.Time
	sync(name string) error
	remove(name string) error
	close() error
}

// folder is a storage of files. It opens a file for each call: thousands of logs may be
// open at the same time, and file descriptors are limited.
type folder struct{ dir string }

const journalExt = ".journal"

// path distributes the files over subfolders, to keep each folder small.
func (f folder) path(name string) string {
	return filepath.Join(f.dir, name[:2], name+journalExt)
}

func (f folder) list() (names []string, err error) {
	err = filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), journalExt); ok && err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

func (f folder) write(name string, p []byte, at int64) (err error) {
	path := f.path(name)
	flags := os.O_WRONLY
	if at == 0 {
		flags |= os.O_CREATE
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.WriteAt(p, at); err != nil {
		// A later start must not load an incomplete write as acknowledged lines.
		err = errors.Join(err, file.Truncate(at))
	}
	return errors.Join(err, file.Close())
}

func (f folder) open(name string, at int64) (io.ReadCloser, error) {
	file, err := os.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (f folder) cut(name string, size int64) error { return os.Truncate(f.path(name), size) }

func (f folder) changed(name string) time.Time {
	info, err := os.Stat(f.path(name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func (f folder) sync(name string) error {
	file, err := os.OpenFile(f.path(name), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed since
	}
	if err != nil {
		return err
	}
	err = errors.Join(file.Sync(), file.Close())
	if d, openErr := os.Open(filepath.Dir(f.path(name))); openErr == nil {
		_ = d.Sync() // makes the name durable, if the system can sync a folder
		_ = d.Close()
	}
	return err
}

func (f folder) remove(name string) error {
	if err := os.Remove(f.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f folder) close() error { return nil }

// memory is a storage in memory.
type memory struct {
	mu    sync.Mutex        // guards files
	files map[string][]byte // append-only, so a reader's slice stays valid
}

func newMemory() *memory { return &memory{files: map[string][]byte{}} }

func (m *memory) list() ([]string, error) { return nil, nil }

func (m *memory) write(name string, p []byte, at int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.files[name]
	if int64(len(b)) != at {
		return fmt.Errorf("writing at %d of %d bytes", at, len(b))
	}
	m.files[name] = append(b, p...)
	return nil
}

func (m *memory) open(name string, at int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b[at:])), nil
}

func (m *memory) cut(string, int64) error  { return nil }
func (m *memory) changed(string) time.Time { return time.Time{} }
func (m *memory) sync(string) error        { return nil }

func (m *memory) remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files = map[string][]byte{}
	return nil
}
